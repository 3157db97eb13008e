"""Run the smallest clog: one handler, one run, one result."""

import anyio

from ocean import Clog, Done, Ocean, Outcome, Tick

hello = Clog("hello")


@hello.on_advance
async def advance(tick: Tick) -> Outcome:
    return Done(f"Hello, {tick.input['name']}!")


async def main() -> None:
    async with Ocean.open("sqlite://:memory:", clogs=[hello]) as ocean:
        run = await ocean.create_run(session_id="s1", clog_id="hello", input={"name": "Ada"})
        print(await ocean.result(run.run_id))


if __name__ == "__main__":
    anyio.run(main)
