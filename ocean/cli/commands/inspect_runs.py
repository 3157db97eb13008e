"""`ocean ps`, `show`, `explain`, `clogs`: commands that only read."""

from collections import deque
from typing import Annotated

import typer

from ocean.cli.options import ANY_RUN, Clogs, Db, Json, RunId, Selection, expand_options


@expand_options()
def ps(
    selection: Selection = ANY_RUN,
    order: Annotated[
        str | None, typer.Option("--order", help="newest, oldest; with an attribute's range: ascending, descending.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="How many runs.")] = 50,
    cursor: Annotated[str | None, typer.Option("--cursor", help="Continue after an earlier page.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep the table up to date until Ctrl-C.")] = False,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """List runs, the newest first."""
    from ocean import InvalidValue, Ocean, RunPage
    from ocean.cli.output import Screen
    from ocean.cli.parsing import run_query
    from ocean.cli.runner import run
    from ocean.cli.tables import runs_table

    async def page(ocean: Ocean) -> RunPage:
        query = run_query(ocean.clock.now(), selection)
        return await ocean.list_runs(order=order, limit=limit, cursor=cursor, **query)  # type: ignore[arg-type]

    async def watch_runs(ocean: Ocean, screen: Screen) -> None:
        from rich.live import Live

        with Live(console=screen.console, auto_refresh=False, screen=True) as live:
            while True:
                seen = ocean.commits_seen()
                live.update(runs_table((await page(ocean)).runs, ocean.clock.now()), refresh=True)
                # Ages grow even if nothing is committed.
                await ocean.next_change(seen, wait_ms=1_000, look_ms=500)

    async def work(ocean: Ocean, screen: Screen) -> None:
        if watch and (screen.is_json or not screen.is_terminal):
            raise InvalidValue(
                "--watch must be used on a terminal and without --json; ocean tail --json follows events"
            )
        if watch:
            return await watch_runs(ocean, screen)
        found = await page(ocean)
        if screen.is_json:
            screen.json(found)
        elif not found.runs:
            screen.print("no runs")
        else:
            screen.show(runs_table(found.runs, ocean.clock.now()))
            if found.next_cursor:
                screen.print(f"more: --cursor {found.next_cursor}", "dim")
        return None

    run(work, db, clogs, is_json)


def show(
    run_id: RunId,
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=1_000, help="How many ticks, inputs, events.")] = 20,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Show a run in detail. Its latest ticks, inputs and events, and why it is not moving."""
    from rich.text import Text

    from ocean import Event, Input, Ocean, RunNotFound
    from ocean.cli.json_output import record
    from ocean.cli.output import Screen
    from ocean.cli.runner import run
    from ocean.cli.tables import event_line, holds_lines, inputs_table, run_table, ticks_table, traceback_lines

    async def latest(ocean: Ocean) -> tuple[list[Input], list[Event]]:
        inputs: deque[Input] = deque(maxlen=last)
        events: deque[Event] = deque(maxlen=last)
        while page := await ocean.list_inputs(run_id, after=inputs[-1].number if inputs else 0, limit=1_000):
            inputs += page
        after = 0
        while log := await ocean.read_events(run_id, after=after, limit=1_000):
            events += log
            if log[-1].seq <= after:
                break
            after = log[-1].seq
        return list(inputs), list(events)

    async def work(ocean: Ocean, screen: Screen) -> None:
        found = await ocean.get_run(run_id)
        if found is None:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        ticks = await ocean.list_ticks(run_id, after=max(found.tick - last, 0), limit=last)
        inputs, events = await latest(ocean)
        explained = await ocean.explain(run_id)
        if screen.is_json:
            parts = {"run": found, "ticks": ticks, "inputs": inputs, "events": events, "explain": explained}
            screen.json({name: record(part) for name, part in parts.items()})
            return
        now = ocean.clock.now()
        screen.show(run_table(found, now), *traceback_lines(found.error))
        if not found.is_ended:
            screen.show(Text(), *holds_lines(explained, now))
        if ticks:
            screen.show(Text(), ticks_table(ticks))
        if inputs:
            screen.show(Text(), inputs_table(inputs))
        screen.show(Text())
        for event in events:
            screen.console.print(event_line(event, with_run=False), soft_wrap=True)

    run(work, db, clogs, is_json, needs_clogs=True)


def explain(run_id: RunId, db: Db = None, clogs: Clogs = None, is_json: Json = False) -> None:
    """Show why a run is not moving. The reasons are those of the rules that claim runs."""
    from ocean import Ocean
    from ocean.cli.output import Screen
    from ocean.cli.runner import run
    from ocean.cli.tables import holds_lines, traceback_lines

    async def work(ocean: Ocean, screen: Screen) -> None:
        explained = await ocean.explain(run_id)
        if screen.is_json:
            screen.json(explained)
        else:
            screen.show(*holds_lines(explained, ocean.clock.now()), *traceback_lines(explained.error))

    run(work, db, clogs, is_json, needs_clogs=True)


def list_clogs(db: Db = None, clogs: Clogs = None, is_json: Json = False) -> None:
    """List the registered clogs, and which are loaded here."""
    from pathlib import Path

    from ocean import Ocean
    from ocean.cli.output import Screen
    from ocean.cli.runner import run, settings_of
    from ocean.cli.tables import clogs_table
    from ocean.config import load_clogs

    async def work(ocean: Ocean, screen: Screen) -> None:
        here = {clog.clog_id for clog in load_clogs(settings_of(db, clogs), Path.cwd())}
        found = await ocean.list_clogs()
        if screen.is_json:
            screen.json(found)
        elif not found:
            screen.print("no clogs; name them with --clogs module:attr")
        else:
            screen.show(clogs_table(found, here))

    run(work, db, clogs, is_json, needs_clogs=True)
