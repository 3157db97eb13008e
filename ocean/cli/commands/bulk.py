"""Applying a verb to many runs: count them, ask for confirmation, show the progress."""

import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ocean import BulkProgress, BulkResult, InvalidValue, Ocean, RunStatus
from ocean.access.guard import Guard
from ocean.cli.commands.change_runs import BulkVerb
from ocean.cli.options import BulkOptions
from ocean.cli.output import Screen
from ocean.cli.runner import REFUSED
from ocean.cli.tables import bulk_line
from ocean.kernel.run_query import RunQuery
from ocean.kernel.verbs.bulk import FAILED, LIVE
from ocean.state.records import GenericVerb

CAP = 100_000
"""Count no further than this."""

DEFAULT_STATUSES: dict[str, tuple[RunStatus, ...] | None] = {
    "cancel": LIVE,
    "signal": LIVE,
    "retry": FAILED,
    "retry-end": FAILED,
    "delete": None,
}
"""Which runs a verb applies to if the query names no status. None means any."""
PAST = {
    "cancel": "cancelled",
    "signal": "signalled",
    "retry": "retried",
    "retry-end": "retried the end of",
    "delete": "deleted",
}


async def act_on_selection(
    ocean: Ocean,
    screen: Screen,
    verb: BulkVerb,
    query: RunQuery,
    options: BulkOptions,
    act: Callable[..., Awaitable[BulkResult]],
) -> None:
    """Count the runs, ask for confirmation, apply the verb, print the result."""
    if not query and not options.everything:
        raise InvalidValue(f"{verb} must have run ids, filters such as --clog, or --everything")
    if query and options.everything:
        raise InvalidValue("--everything must be used without filters")
    # Clogs that do not allow the verb are left out, and then it is no longer everything.
    narrowed = await Guard(ocean).allowed(query, policy_of(verb))
    counted: dict[str, Any] = dict(narrowed)
    if verb == "retry-end":
        counted["end_incomplete"] = True
    if "status" not in counted and DEFAULT_STATUSES[verb] is not None:
        counted["status"] = DEFAULT_STATUSES[verb]
    found = await ocean.count_runs(cap=CAP, **counted)
    count = found.count if options.most is None else min(found.count, options.most)
    if count:
        _confirm(verb, f"{'at least ' if found.is_capped and options.most is None else ''}{count}", options.yes)
    with _ProgressBar(screen, verb, count) as update:
        done = await act(
            everything=options.everything and not narrowed,
            per_second=options.rate,
            most=options.most,
            actor=options.actor,
            on_progress=update,
            **narrowed,
        )
    if screen.is_json:
        screen.json(done)
    else:
        screen.print(bulk_line(PAST[verb], done, done.more))


def policy_of(verb: BulkVerb) -> GenericVerb:
    """Return the verb that a clog must allow for this one."""
    return "retry" if verb == "retry-end" else verb


def _confirm(verb: str, count: str, yes: bool) -> None:
    noun = "run" if count == "1" else "runs"
    if verb == "retry-end":
        verb = "retry the end of"
    confirm(f"{verb.capitalize()} {count} {noun}?", f"this would {verb} {count} {noun}", yes)


def confirm(question: str, meaning: str, yes: bool) -> None:
    """Ask for confirmation; a no exits. Without a terminal to ask on, refuse with `meaning`: what would be done."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidValue(f"{meaning}; use --yes to confirm")
    # The event loop would not see Ctrl-C until the prompt returns.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        is_confirmed = typer.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, before)
    if not is_confirmed:
        raise typer.Exit(REFUSED)


class _ProgressBar:
    """A progress bar with a rate on standard error, if that is a terminal."""

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

    def __enter__(self) -> Callable[[BulkProgress], None]:
        self._bar.start()
        return self._update

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _update(self, progress: BulkProgress) -> None:
        speed = self._bar.tasks[0].speed
        rate = "" if speed is None else f"{speed:.0f}/s"
        self._bar.update(self._task, completed=progress.seen, rate=rate)
