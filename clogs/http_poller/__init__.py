"""A poller: asks a URL every so often, and tells when what it says has changed.

A poller is a run, and its next look is its timer. It asks with the ETag and the date it was last given, so an unchanged
page costs its server little. A change is an event, and if it has a target a run or a signal, in the same commit that
remembers what was seen. While the URL fails it looks ever more rarely.
"""

import hashlib
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from clogs.targets import check_target, is_there
from ocean import Clog, Done, Failed, FetchRefused, InvalidValue, OceanError, Ok, Outcome, Tick

__all__ = ["http_poller"]

TIMER = "look"
LONGEST_MS = 365 * 86_400_000
SLOWEST_MS = 3_600_000
MOST_BODY = 64 * 1_024
HOPELESS = {"url", "request", "blocked"}
"""Refusals of `fetch` that no later look will mend."""


class PollerSettings(BaseModel):
    """`clog_id`: create a run of it upon a change; `run_id`: signal that one. With `first`, also for the first look."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Annotated[str, Field(min_length=1, max_length=2_000)]
    every_ms: Annotated[int, Field(ge=1_000, le=LONGEST_MS)] = 300_000
    clog_id: str | None = None
    run_id: str | None = None
    first: bool = False
    headers: Annotated[dict[str, str], Field(max_length=20)] = {}

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if self.clog_id is not None and self.run_id is not None:
            raise ValueError("say clog_id or run_id, not both")
        return self


class PollerState(BaseModel):
    told: PollerSettings
    digest: str | None = None
    etag: str | None = None
    modified: str | None = None
    changes: int = 0
    failures: int = 0


http_poller = Clog(
    "http-poller",
    run_state=PollerState,
    tools=[
        "ocean.storage.read_scoped",
        "ocean.storage.write_scoped",
        "ocean.events.emit",
        "ocean.runs.create",
        "ocean.runs.signal",
        "ocean.runs.get",
        "ocean.clogs.list",
        "ocean.runs.set_attributes",
        "ocean.timers.set",
        "ocean.steps.run",
        "ocean.http.fetch",
    ],
)


@http_poller.on_advance
async def advance(tick: Tick) -> Outcome:
    """Any signal makes it look at once."""
    seen: PollerState | None = (await tick.read(run=True)).run
    if seen is None:
        try:
            seen = await begin(tick)
        except OceanError as error:
            return Failed({"code": error.code, "message": error.message})
    try:
        answer = await tick.step("get", lambda key: _get(tick, seen))
    except FetchRefused as refusal:
        if refusal.details.get("reason") in HOPELESS:
            return Failed({"code": refusal.code, "message": refusal.message})
        answer = {"error": refusal.message}
    if "error" in answer:
        return await rest(tick, seen, await _failed(tick, seen, answer))
    if seen.failures:
        await tick.emit("poller.recovered", {"failures": seen.failures})
    seen.failures = 0
    if answer["status"] != 304:
        seen.etag, seen.modified = answer["etag"], answer["modified"]
        if answer["digest"] != seen.digest and not await _changed(tick, seen, answer):
            return Done({"reason": "target_ended", "changes": seen.changes})
    return await rest(tick, seen, seen.told.every_ms)


async def begin(tick: Tick) -> PollerState:
    try:
        told = PollerSettings.model_validate(tick.input)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "input"
        raise InvalidValue(f"http-poller: {where}: {first['msg']}") from None
    if told.clog_id is not None or told.run_id is not None:
        await check_target(tick, clog_id=told.clog_id, run_id=told.run_id)
    return PollerState(told=told)


async def rest(tick: Tick, seen: PollerState, after_ms: int) -> Outcome:
    await tick.set_timer(TIMER, after_ms=after_ms)
    await tick.set_attributes(changes=seen.changes, failures=seen.failures)
    await tick.write(run=seen)
    return Ok()


async def _get(tick: Tick, seen: PollerState) -> dict[str, Any]:
    """What is needed of the answer, and no more: a step's result is stored."""
    asked = {"If-None-Match": seen.etag, "If-Modified-Since": seen.modified}
    headers = seen.told.headers | {name: value for name, value in asked.items() if value is not None}
    answer = await tick.fetch(seen.told.url, headers=headers)
    if answer.status >= 300 and answer.status != 304:
        return {"error": f"the server answered {answer.status}", "after": answer.headers.get("retry-after", "")}
    return {
        "status": answer.status,
        "digest": hashlib.sha256(answer.body).hexdigest(),
        "etag": answer.headers.get("etag"),
        "modified": answer.headers.get("last-modified"),
        "body": answer.text if len(answer.body) <= MOST_BODY else None,
        "bytes": len(answer.body),
    }


async def _changed(tick: Tick, seen: PollerState, answer: dict[str, Any]) -> bool:
    """Tell of it; False if there is nobody any more to be told."""
    is_first = seen.digest is None
    seen.digest = answer["digest"]
    if is_first and not seen.told.first:
        return True
    seen.changes += 1
    told = {"url": seen.told.url, "sha256": seen.digest, "bytes": answer["bytes"], "etag": seen.etag, "first": is_first}
    await tick.emit("poller.changed", told)
    input = told | {"body": answer["body"], "poller_id": tick.run_id}
    if seen.told.clog_id is not None:
        await tick.create_run(clog_id=seen.told.clog_id, input=input)
    if seen.told.run_id is not None:
        if not await is_there(tick, seen.told.run_id):
            return False
        await tick.signal(seen.told.run_id, input, signal_id=f"{tick.run_id}/{tick.number}")
    return True


async def _failed(tick: Tick, seen: PollerState, answer: dict[str, Any]) -> int:
    """How long to wait: doubling with each failure, up to an hour or its own interval, or as long as it is asked to."""
    seen.failures += 1
    if seen.failures == 1:
        await tick.emit("poller.failing", {"error": answer["error"]})
    every = seen.told.every_ms
    slower: int = min(every * 2 ** min(seen.failures, 20), max(SLOWEST_MS, every))
    text = answer.get("after", "")
    asked = int(text) * 1_000 if text.isascii() and text.isdigit() and len(text) < 7 else 0
    return max(slower, min(asked, 24 * SLOWEST_MS))
