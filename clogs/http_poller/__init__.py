"""A poller: requests a URL at an interval and reports when its content has changed.

A poller is a run whose timer is the next request. It sends the last ETag and date, so an unchanged page is cheap to
serve. A change is an event and, if the poller has a target, a new run or a signal, in the commit that stores the new
digest. While the URL fails, the interval grows. The whole clog is in this file.
"""

import hashlib
from typing import Annotated, Any, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from clogs.targets import can_be_signalled, check_target
from ocean import Clog, Done, Failed, FetchRefused, InvalidValue, OceanError, Ok, Outcome, Tick

__all__ = ["http_poller"]

TIMER = "look"
LONGEST_MS = 365 * 86_400_000
SLOWEST_MS = 3_600_000
MOST_BODY = 64 * 1_024
HOPELESS = {"url", "request", "blocked"}
"""Reasons of `FetchRefused` that a later request cannot change."""


class PollerSettings(BaseModel):
    """The input of a poller's run. On a change it creates a run of `clog_id` or signals `run_id`.

    With `first`, the first response counts as a change.
    """

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
            raise ValueError("clog_id and run_id must not both be given")
        return self


class PollerState(BaseModel):
    """The run's row. The alias is the name under which the settings are stored."""

    model_config = ConfigDict(serialize_by_alias=True)

    settings: PollerSettings = Field(validation_alias=AliasChoices("settings", "told"), serialization_alias="told")
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
    """Request the URL: when the run is created, when its timer fires, and on any signal."""
    state: PollerState | None = (await tick.read(run=True)).run
    if state is None:
        try:
            state = await first_state(tick)
        except OceanError as error:
            return Failed({"code": error.code, "message": error.message})
    try:
        response = await tick.step("get", lambda key: _get(tick, state))
    except FetchRefused as refusal:
        if refusal.details.get("reason") in HOPELESS:
            return Failed({"code": refusal.code, "message": refusal.message})
        response = {"error": refusal.message}
    if "error" in response:
        return await wait_for_next(tick, state, await _next_delay(tick, state, response))
    if state.failures:
        await tick.emit("poller.recovered", {"failures": state.failures})
    state.failures = 0
    if response["status"] != 304:
        state.etag, state.modified = response["etag"], response["modified"]
        if response["digest"] != state.digest and not await _report_change(tick, state, response):
            return Done({"reason": "target_ended", "changes": state.changes})
    return await wait_for_next(tick, state, state.settings.every_ms)


async def first_state(tick: Tick) -> PollerState:
    try:
        settings = PollerSettings.model_validate(tick.input)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "input"
        raise InvalidValue(f"http-poller: {where}: {first['msg']}") from None
    if settings.clog_id is not None or settings.run_id is not None:
        await check_target(tick, clog_id=settings.clog_id, run_id=settings.run_id)
    return PollerState(settings=settings)


async def wait_for_next(tick: Tick, state: PollerState, after_ms: int) -> Outcome:
    await tick.set_timer(TIMER, after_ms=after_ms)
    await tick.set_attributes(changes=state.changes, failures=state.failures)
    await tick.write(run=state)
    return Ok()


async def _get(tick: Tick, state: PollerState) -> dict[str, Any]:
    """Request the URL and return only what is needed of the response: a step's result is stored."""
    conditions = {"If-None-Match": state.etag, "If-Modified-Since": state.modified}
    headers = state.settings.headers | {name: value for name, value in conditions.items() if value is not None}
    response = await tick.fetch(state.settings.url, headers=headers)
    if response.status >= 300 and response.status != 304:
        return {
            "error": f"the server responded with {response.status}",
            "after": response.headers.get("retry-after", ""),
        }
    return {
        "status": response.status,
        "digest": hashlib.sha256(response.body).hexdigest(),
        "etag": response.headers.get("etag"),
        "modified": response.headers.get("last-modified"),
        "body": response.text if len(response.body) <= MOST_BODY else None,
        "bytes": len(response.body),
    }


async def _report_change(tick: Tick, state: PollerState, response: dict[str, Any]) -> bool:
    """Report a change: an event, and the target's run or signal. Return False if the target has ended."""
    is_first = state.digest is None
    state.digest = response["digest"]
    if is_first and not state.settings.first:
        return True
    state.changes += 1
    change = {
        "url": state.settings.url,
        "sha256": state.digest,
        "bytes": response["bytes"],
        "etag": state.etag,
        "first": is_first,
    }
    await tick.emit("poller.changed", change)
    input = change | {"body": response["body"], "poller_id": tick.run_id}
    if state.settings.clog_id is not None:
        await tick.create_run(clog_id=state.settings.clog_id, input=input)
    if state.settings.run_id is not None:
        if not await can_be_signalled(tick, state.settings.run_id):
            return False
        await tick.signal(state.settings.run_id, input, signal_id=f"{tick.run_id}/{tick.number}")
    return True


async def _next_delay(tick: Tick, state: PollerState, response: dict[str, Any]) -> int:
    """Count a failure and return the delay: doubled each time, up to an hour or the interval, or `Retry-After`."""
    state.failures += 1
    if state.failures == 1:
        await tick.emit("poller.failing", {"error": response["error"]})
    every = state.settings.every_ms
    slower: int = min(every * 2 ** min(state.failures, 20), max(SLOWEST_MS, every))
    text = response.get("after", "")
    retry_after_ms = int(text) * 1_000 if text.isascii() and text.isdigit() and len(text) < 7 else 0
    return max(slower, min(retry_after_ms, 24 * SLOWEST_MS))
