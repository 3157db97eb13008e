"""Create every kind of hold and explain it. Time is virtual and moves only when the program moves it."""

import anyio

from ocean import Clog, Continue, Done, Ok, Retry, Tick, Wait
from ocean.testing import World, world

mail, render = Clog("mail"), Clog("render", external=True)


@mail.on_advance
async def advance(tick: Tick) -> Ok | Done | Wait | Retry | Continue:
    match tick.input:
        case "finish":
            return Done("sent")
        case "sleep":
            return Wait(for_ms=60_000)
        case "break":
            return Retry("the mail server is down")
        case "explain yourself":
            await show(current_world, tick.run_id, "while its handler runs")
        case "explain the next":
            await show(current_world, "parked", "while another has the only slot")
    return Ok()


current_world: World


async def show(w: World, run_id: str, when: str, *, name: str | None = None) -> None:
    """Print the explanation of a run, with times in seconds from now."""
    explanation = await w.ocean.explain(run_id)
    print(f"{name or run_id}, {when}: {explanation.status}")
    for hold in explanation.holds:
        until = f", for {(hold.until - w.clock.now()) / 1000:g} s" if hold.until is not None else ""
        holder = f", held by {hold.holder}" if hold.holder is not None else ""
        print(f"  {hold.code}{until}{holder}\n    {hold.message}")
    if explanation.is_claimable:
        print("  no hold: the next advance here claims it")


async def create(w: World, run_id: str, what: str, **options: object) -> None:
    await w.ocean.create_run(session_id="docs", clog_id="mail", run_id=run_id, input=what, **options)  # type: ignore[arg-type]


async def main() -> None:
    global current_world
    # A fixed id, so that the output is always the same.
    async with world(clogs=[mail, render], instance_id="web-1") as w:
        current_world = w
        await create(w, "fresh", "finish")
        await show(w, "fresh", "just created")
        await w.drain()
        await show(w, "fresh", "after its tick")
        for run_id, what, when in (
            ("idle", "rest", "after Ok"),
            ("asleep", "sleep", "after Wait"),
            ("broken", "break", "after Retry"),
        ):
            await create(w, run_id, what)
            await w.drain()
            await show(w, run_id, when)
        await create(w, "worker", "explain yourself")
        await w.drain()

        await create(w, "paused", "finish")
        await w.ocean.pause_run("paused")
        await show(w, "paused", "after pause_run")
        await w.ocean.pause_clog("mail")
        await show(w, "paused", "after pause_clog too")
        await w.ocean.resume_clog("mail")

        for run_id in ("first", "second"):
            await create(w, run_id, "finish", rate_key="mail server", rate_limit=1, rate_per_ms=10_000)
        await show(w, "second", "beyond the rate")
        debounced = await w.ocean.create_run(
            session_id="docs", clog_id="mail", input="finish", dedupe_key="page-7", debounce_ms=5_000
        )
        await show(w, debounced.run_id, "just created", name="debounced")

        await create(w, "holder", "explain the next", concurrency_keys=["printer"], priority=1)
        await create(w, "parked", "finish", concurrency_keys=["printer"], priority=2)
        await w.drain()

        await w.ocean.create_run(session_id="docs", clog_id="render", run_id="page", input=7, queue="gpu")
        await show(w, "page", "a run of an external clog")
        await w.ocean.claim_work("render", worker_id="gpu-box-3", queues=["gpu"])
        await show(w, "page", "leased")

        elsewhere = await w.instance([])
        explanation = await elsewhere.explain("paused")
        print("paused, on an instance without the clog:")
        print(f"  {', '.join(hold.code for hold in explanation.holds)}")


if __name__ == "__main__":
    anyio.run(main)
