"""`ocean schedule`: runs at the times of a cron expression or an interval. Calls methods of the clog `schedule`."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ocean.cli.options import Actor, Clogs, Db, Input, Json, RequestKey

if TYPE_CHECKING:
    from ocean import Ocean, RunInfo
    from ocean.cli.output import Screen

CLOG = "schedule"
SHIPPED = ("clogs.schedule:schedule",)
ADD_HELP = """Create a schedule and print the id of its run.

Repeated with the same options, it prints the same id.

\b
ocean schedule add nightly --cron '0 3 * * *' --zone Europe/Lisbon --clog report
ocean schedule add beat --every 10m --clog check --input '{"url": "…"}' --missed skip
ocean schedule add weekly --cron '0 9 * * MON' --signal RUN_ID
"""
NEXT_HELP = """Show the next times of a schedule or of a cron expression.

\b
ocean schedule next nightly -n 3
ocean schedule next --cron '30 2 * * *' --zone America/New_York
"""

schedule_app = typer.Typer(help="Runs at the times of a cron expression or an interval.", no_args_is_help=True)

Which = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name in the session, or the id of its run.")]
Session = Annotated[str, typer.Option("--session", metavar="SESSION", help="The session of the name.")]
Cron = Annotated[str | None, typer.Option("--cron", metavar="EXPR", help="Five fields, or six with seconds first.")]
Every = Annotated[
    str | None, typer.Option("--every", metavar="TIME", help="An interval instead of --cron: 30s, 10m, 2h, 7d.")
]
Zone = Annotated[
    str | None, typer.Option("--zone", metavar="ZONE", help="The time zone of --cron, an IANA name. Default: UTC.")
]


@schedule_app.command("add", help=ADD_HELP)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, unique in the session.")],
    cron: Cron = None,
    every: Every = None,
    zone: Zone = None,
    clog: Annotated[
        str | None, typer.Option("--clog", metavar="CLOG", help="Create a run of this clog each time.")
    ] = None,
    signal: Annotated[
        str | None, typer.Option("--signal", metavar="RUN_ID", help="Signal this run each time instead.")
    ] = None,
    input: Input = None,
    times_as: Annotated[
        str | None, typer.Option("--times-as", metavar="NAME", help="The field of the input for the times.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--start", metavar="WHEN", help="Not before: 2h (from now), or an ISO time.")
    ] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="WHEN", help="Only before then.")] = None,
    times: Annotated[int | None, typer.Option("--times", metavar="N", min=1, help="At most N times.")] = None,
    missed: Annotated[
        str | None,
        typer.Option("--missed", metavar="POLICY", help="For missed times: skip, once or all. Default: once."),
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap", metavar="POLICY", help="If the last run is not over: allow, skip or queue. Default: allow."
        ),
    ] = None,
    session: Session = "default",
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    from ocean.cli.parsing import json_input, time_at

    async def work(ocean: "Ocean", screen: "Screen") -> None:
        now = ocean.clock.now()
        target = {"clog_id": clog, "run_id": signal, "input": json_input(input), "times_as": times_as}
        options = _timing(cron, every, zone) | {
            "name": name,
            "target": _given(target),
            "start_at": time_at(start, "--start", now, ago=False),
            "end_at": time_at(end, "--end", now, ago=False),
            "limit": times,
            "missed": missed,
            "overlap": overlap,
        }
        made = await _call(ocean, "add", _given(options), session=session, actor=actor, request_key=request_key)
        # The first tick writes the attributes that `list` and `show` print. Any other poke would do the same.
        await ocean.advance(run_id=made["run_id"], max_ticks=1)
        screen.json(made) if screen.is_json else screen.print(made["run_id"])

    _run(work, db, clogs, is_json)


@schedule_app.command("list")
def list_schedules(
    session: Annotated[str | None, typer.Option("--session", metavar="SESSION", help="Only this session.")] = None,
    everything: Annotated[bool, typer.Option("--everything", help="Include those that have ended.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="How many.")] = 100,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """List schedules, with their next times."""
    from ocean.cli.commands.schedule_tables import schedules_table

    async def work(ocean: "Ocean", screen: "Screen") -> None:
        live = None if everything else ("idle", "pending", "active", "waiting")
        page = await ocean.list_runs(clog_id=CLOG, session_id=session, status=live, limit=limit)
        if screen.is_json:
            screen.json(page)
        elif page.runs:
            screen.show(schedules_table(page.runs, ocean.clock.now()))
        else:
            screen.print("no schedules")

    _run(work, db, clogs, is_json)


@schedule_app.command("show")
def show(which: Which, session: Session = "default", db: Db = None, clogs: Clogs = None, is_json: Json = False) -> None:
    """Show a schedule. Its options, its next time, and how often it has fired."""
    from ocean.cli.commands.schedule_tables import schedule_table

    async def work(ocean: "Ocean", screen: "Screen") -> None:
        run = await _find(ocean, which, session)
        shown = await _call(ocean, "show", run_id=run.run_id)
        screen.json(shown) if screen.is_json else screen.show(schedule_table(shown, ocean.clock.now()))

    _run(work, db, clogs, is_json)


@schedule_app.command("next", help=NEXT_HELP)
def show_next(
    which: Annotated[str | None, typer.Argument(metavar="SCHEDULE", help="Its name, or the id of its run.")] = None,
    n: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="How many times.")] = 5,
    cron: Cron = None,
    every: Every = None,
    zone: Zone = None,
    session: Session = "default",
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    from ocean import InvalidValue

    async def work(ocean: "Ocean", screen: "Screen") -> None:
        timing = _given(_timing(cron, every, zone))
        if (which is None) != bool(timing):
            raise InvalidValue("next must have a schedule, or one of --cron and --every")
        run = None if which is None else await _find(ocean, which, session)
        shown = await _call(ocean, "upcoming", {**timing, "n": n}, run_id=run.run_id if run else None)
        if screen.is_json:
            screen.json(shown)
            return
        for each in shown:
            screen.print(each["local"])
        if not shown:
            screen.print("no more times")

    _run(work, db, clogs, is_json)


@schedule_app.command("trigger")
def trigger(
    which: Which,
    session: Session = "default",
    actor: Actor = None,
    request_key: RequestKey = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Fire once now, and print the run's id. The scheduled times do not change."""

    async def work(ocean: "Ocean", screen: "Screen") -> None:
        run = await _find(ocean, which, session)
        made = await _call(ocean, "trigger", run_id=run.run_id, actor=actor, request_key=request_key)
        screen.json(made) if screen.is_json else screen.print(made["run_id"])

    _run(work, db, clogs, is_json)


def _verb_command(verb: str, past: str) -> Callable[..., None]:
    """Return a command that applies a verb for runs to the run of a schedule."""

    def act(
        which: Which,
        session: Session = "default",
        actor: Actor = None,
        request_key: RequestKey = None,
        db: Db = None,
        clogs: Clogs = None,
        is_json: Json = False,
    ) -> None:
        async def work(ocean: "Ocean", screen: "Screen") -> None:
            run = await _find(ocean, which, session)
            result = await getattr(ocean, f"{verb}_run")(run.run_id, actor=actor, request_key=request_key)
            if verb == "cancel":
                # The last tick releases the name.
                await ocean.advance(run_id=run.run_id, max_ticks=1)
                result = await ocean.get_run(run.run_id)
            screen.json(result) if screen.is_json else screen.print(f"{past} {which}")

        _run(work, db, clogs, is_json)

    return act


schedule_app.command("pause", help="Pause a schedule. Times that pass meanwhile are handled by its --missed policy.")(
    _verb_command("pause", "paused")
)
schedule_app.command("resume", help="Resume a paused schedule.")(_verb_command("resume", "resumed"))
schedule_app.command("remove", help="End a schedule. The runs that it created stay.")(
    _verb_command("cancel", "removed")
)


def _timing(cron: str | None, every: str | None, zone: str | None) -> dict[str, Any]:
    from ocean.cli.parsing import duration_ms

    return {"cron": cron, "every_ms": duration_ms(every, "--every"), "zone": zone}


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    from ocean import UNSET

    return {name: value for name, value in options.items() if value is not None and value is not UNSET}


async def _find(ocean: "Ocean", which: str, session: str) -> "RunInfo":
    from ocean import RunNotFound

    named = await _call(ocean, "find", which, session=session)
    run = await ocean.get_run(named or which)
    if run is None or run.clog_id != CLOG:
        raise RunNotFound(
            f"there is no schedule {which!r} in session {session!r}, and no schedule whose run has that id"
        )
    return run


async def _call(
    ocean: "Ocean",
    method: str,
    payload: Any = None,
    *,
    run_id: str | None = None,
    session: str | None = None,
    actor: str | None = None,
    request_key: str | None = None,
) -> Any:
    from ocean import Caller

    return await ocean.call_clog(
        method=method,
        run_id=run_id,
        clog_id=None if run_id else CLOG,
        session_id=session,
        payload=payload,
        caller=None if actor is None else Caller(actor),
        request_key=request_key,
    )


def _run(
    work: Callable[["Ocean", "Screen"], Awaitable[None]], db: str | None, clogs: str | None, is_json: bool
) -> NoReturn:
    from ocean.cli.runner import run

    run(work, db, clogs, is_json, needs_clogs=True, shipped=SHIPPED)
