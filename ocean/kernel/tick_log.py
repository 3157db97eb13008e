"""The log lines of ticks and calls: a sentence for people, and fields for programs.

An ordinary tick is logged at the level info, a failed attempt at warning, a run that has failed at error. A program
that has not set up logging sees the last two on standard error, as Python writes them: the sentence alone.
"""

import logging
from typing import TYPE_CHECKING, Any

from ocean.state.outcomes import ErrorInfo, one_line, place_text, plain_code, sentence_of
from ocean.state.records import RunStatus

if TYPE_CHECKING:
    from ocean.kernel.metrics import TickSeen
    from ocean.kernel.tick_facts import TickFacts

LOGGED = ("run_id", "clog_id", "tick", "call", "outcome", "step", "code", "ms", "epoch", "reason", "source")

log = logging.getLogger("ocean.tick")


def fields(*, name: str | None = None, **values: Any) -> dict[str, Any]:
    """Return the `extra` of a log record: the fields that a formatter of Ocean writes after the message.

    With `name` it writes that instead of the message: the fields contain the same as the sentence.
    """
    found = {key: value for key, value in values.items() if value is not None}
    return {"ocean_fields": found} if name is None else {"ocean_fields": found, "ocean_name": name}


def log_tick(seen: "TickSeen") -> None:
    """Log one call of a clog."""
    if seen.error is not None:
        level = logging.ERROR if seen.status is RunStatus.FAILED else logging.WARNING
    else:
        level = logging.WARNING if seen.outcome in ("lock_lost", "error") else logging.INFO
    if not log.isEnabledFor(level):
        return
    values = {name: getattr(seen, name) for name in LOGGED}
    if seen.error is not None:
        values |= {"attempt": _attempt(seen), "place": place_text(seen.error.as_json())}
    name = "tick" if level == logging.INFO else None
    log.log(level, "%s", _Sentence(seen), extra=fields(name=name, **values))


def log_failed_step(
    tick: "TickFacts", step: str, attempt: int, most: int | None, error: ErrorInfo, next_ms: int | None
) -> None:
    """Log a failed attempt of a flow's step. The tick itself has not failed."""
    of = "" if most is None else f" of {most}"
    what = "no attempt is left" if next_ms is None else f"next attempt in {span(next_ms)}"
    text = f"{tick.clog_id} step {step!r} of run {tick.run_id} failed in tick {tick.number} (attempt {attempt}{of})"
    text = one_line(f"{text}: {sentence_of(error.as_json())}; {what}")
    extra = fields(
        run_id=tick.run_id,
        clog_id=tick.clog_id,
        tick=tick.number,
        step=step,
        attempt=attempt,
        code=plain_code(error.code),
        place=place_text(error.as_json()),
    )
    log.warning("%s", text, extra=extra)


def log_failed_call(clog_id: str, method: str, run_id: str | None, error: ErrorInfo) -> None:
    """Log a direct call whose method has raised. Its caller gets the exception; over HTTP, an error without a place."""
    of = "" if run_id is None else f" of run {run_id}"
    text = one_line(f"{clog_id}.{method}{of} failed: {sentence_of(error.as_json())}")
    values = {"code": plain_code(error.code), "place": place_text(error.as_json())}
    log.warning("%s", text, extra=fields(run_id=run_id, clog_id=clog_id, method=method, **values))


def span(ms: int) -> str:
    """Return a duration for people: `250 ms`, `1 s`, `1.5 s`."""
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1_000:.1f}".removesuffix(".0") + " s"


class _Sentence:
    """The message of a record, made only if something writes it."""

    def __init__(self, seen: "TickSeen") -> None:
        self._seen = seen

    def __str__(self) -> str:
        seen = self._seen
        text = f"{seen.clog_id} {'last tick' if _is_last(seen) else 'tick'} {seen.tick} of run {seen.run_id}"
        return one_line(f"{text} {_what(seen)}")


def _what(seen: "TickSeen") -> str:
    if seen.error is not None:
        attempt, most = _attempt(seen), None if _is_last(seen) or seen.run is None else seen.run.max_attempts
        counted = "" if attempt is None else f" (attempt {attempt}{'' if most is None else f' of {most}'})"
        return f"failed{counted}: {sentence_of(seen.error.as_json())}{_then(seen)}"
    match seen.outcome:
        case "lock_lost":
            return "lost its lock: another instance has the run, and what this call did is discarded"
        case "error":
            return "could not be committed: the database failed"
        case _:
            return f"ended in {seen.ms} ms: {seen.outcome}"


def _attempt(seen: "TickSeen") -> int | None:
    """Return which attempt it was: of the run, or of its last tick."""
    if seen.run is None:
        return None
    return 1 + (seen.run.end_attempt if _is_last(seen) else seen.run.attempt)


def _is_last(seen: "TickSeen") -> bool:
    return seen.run is not None and seen.run.ending is not None


def _then(seen: "TickSeen") -> str:
    if seen.status is RunStatus.FAILED:
        return "; the run has failed"
    if seen.next_ms is not None:
        return f"; next attempt in {span(seen.next_ms)}"
    return "; the run is ending" if seen.status is RunStatus.PENDING else ""
