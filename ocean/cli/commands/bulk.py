"""Doing something to many runs: say how many, ask, show how far it is."""

import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ocean import BulkProgress, BulkResult, InvalidValue, Ocean, RunStatus
from ocean.access.guard import Guard
from ocean.cli.output import Screen
from ocean.cli.runner import REFUSED
from ocean.cli.tables import bulk_line
from ocean.kernel.run_query import RunQuery
from ocean.kernel.verbs.bulk import FAILED, LIVE
from ocean.state.records import GenericVerb

CAP = 100_000

MEANT: dict[str, tuple[RunStatus, ...] | None] = {"cancel": LIVE, "signal": LIVE, "retry": FAILED, "delete": None}
PAST = {"cancel": "cancelled", "signal": "signalled", "retry": "retried", "delete": "deleted"}


@dataclass(frozen=True, slots=True)
class Many:
    """Which runs, and how to go about them."""

    query: RunQuery
    everything: bool
    yes: bool
    rate: int | None
    most: int | None
    actor: str | None


async def act_on_many(
    ocean: Ocean, screen: Screen, verb: GenericVerb, many: Many, act: Callable[..., Awaitable[BulkResult]], **extra: Any
) -> None:
    """Count, ask, act. A query without a status means what the verb can do something to."""
    if not many.query and not many.everything:
        raise InvalidValue(f"say which runs to {verb}: ids, filters such as --clog, or --everything")
    if many.query and many.everything:
        raise InvalidValue("--everything goes without filters; leave one of them out")
    # Clogs that keep the verb to themselves are left out, and then it is no longer everything.
    narrowed = await Guard(ocean).allowed(RunQuery(**many.query), verb)
    query: dict[str, Any] = dict(narrowed)
    if "status" not in query and MEANT[verb] is not None:
        query["status"] = MEANT[verb]
    found = await ocean.count_runs(cap=CAP, **query)
    count = found.count if many.most is None else min(found.count, many.most)
    if count:
        _confirm(verb, f"{'at least ' if found.is_capped and many.most is None else ''}{count}", many.yes)
    with _progress(screen, verb, count) as (tell, _):
        done = await act(
            everything=many.everything and not narrowed,
            per_second=many.rate,
            most=many.most,
            actor=many.actor,
            on_progress=tell,
            **narrowed,
            **extra,
        )
    if screen.is_json:
        screen.json(done)
    else:
        screen.say(bulk_line(PAST[verb], done, done.more))


def _confirm(verb: str, count: str, yes: bool) -> None:
    noun = "run" if count == "1" else "runs"
    confirm(f"{verb.capitalize()} {count} {noun}?", f"this would {verb} {count} {noun}", yes)


def confirm(question: str, meaning: str, yes: bool) -> None:
    """Ask; a no ends the command. Where nobody can be asked, it is refused with what it would have done."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidValue(f"{meaning}; say --yes to do it without being asked")
    # The event loop would keep Ctrl-C for itself until the prompt returns.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        is_wanted = typer.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, before)
    if not is_wanted:
        raise typer.Exit(REFUSED)


class _progress:
    """A bar with a rate on standard error, if that is a terminal."""

    def __init__(self, screen: Screen, verb: str, count: int) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=screen.is_json or not console.is_terminal,
        )
        self._task = self._bar.add_task(verb, total=count, rate="")

    def __enter__(self) -> tuple[Callable[[BulkProgress], None], Progress]:
        self._bar.start()
        return self._tell, self._bar

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _tell(self, progress: BulkProgress) -> None:
        speed = self._bar.tasks[0].speed
        rate = "" if speed is None else f"{speed:.0f}/s"
        self._bar.update(self._task, completed=progress.seen, rate=rate)
