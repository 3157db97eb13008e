"""Count to three in three ticks, and close the database after the first: no process needs to run between ticks."""

import tempfile
from pathlib import Path

import anyio

from clogs.counter import counter
from ocean import Ocean


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'ocean.db'}"
        async with Ocean.open(url, clogs=[counter]) as ocean:
            run = await ocean.create_run(session_id="s1", clog_id="counter", input={})
            await ocean.advance(max_ticks=1)
            print("one tick, then everything is closed")
        async with Ocean.open(url, clogs=[counter]) as ocean:
            print("reopened, the counter is at", await ocean.call_clog(run_id=run.run_id, method="value"))
            print("result:", await ocean.result(run.run_id))
            async for event in ocean.follow(run.run_id):
                if event.type == "counted":
                    print(f"  tick {event.tick}: counted {event.payload['n']}")


if __name__ == "__main__":
    anyio.run(main)
