"""`ocean advance`: one poke, or pokes until nothing is due."""

from typing import Annotated, Any

import typer

from ocean.cli.options import Clogs, Db, Json


def advance(
    run_id: Annotated[str | None, typer.Argument(metavar="RUN_ID", help="Only this run.")] = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="How long to keep claiming runs.")] = "1s",
    max_ticks: Annotated[
        int | None, typer.Option("--max-ticks", metavar="N", min=1, help="Stop after N ticks.")
    ] = None,
    clog: Annotated[list[str] | None, typer.Option("--clog", metavar="CLOG", help="Only runs of this clog.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="How many ticks may run at once.")] = 32,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the next tick of RUN_ID without committing it.")
    ] = False,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Poke until nothing is due. Does not wait for runs that sleep.")
    ] = False,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Do the work that is due. Claims runs, calls their clogs, commits, and prints when the next run is due."""
    from ocean import AdvanceResult, InvalidValue, Ocean
    from ocean.cli.output import Screen
    from ocean.cli.parsing import duration_ms
    from ocean.cli.runner import run
    from ocean.cli.tables import advance_lines, dry_run_lines

    async def work(ocean: Ocean, screen: Screen) -> None:
        options: dict[str, Any] = {"budget_ms": duration_ms(budget, "--budget"), "run_id": run_id, "source": "cli"}
        if dry_run and (until_idle or max_ticks or clog):
            raise InvalidValue("--dry-run must be used without --until-idle, --max-ticks and --clog: it shows one tick")
        if dry_run:
            result = await ocean.advance(**options, dry_run=True)
        else:
            options |= {"max_ticks": max_ticks, "clog_ids": clog or None, "concurrency": concurrency}
            result = await ocean.advance(**options)
        outcomes = result.outcomes
        while until_idle and max_ticks is None and result.outcomes:
            result = await ocean.advance(**options)
            outcomes += result.outcomes
        rest = (result.due_now, result.next_wake_at, result.oldest_due_age_ms, result.unclaimable, result.dry_run)
        result = AdvanceResult(outcomes, *rest)
        if screen.is_json:
            screen.json(result)
        elif result.dry_run is not None:
            for line in dry_run_lines(result.dry_run):
                screen.console.print(line, soft_wrap=True)
        else:
            screen.show(*advance_lines(result, ocean.clock.now()))

    run(work, db, clogs, is_json, needs_clogs=True)
