"""A digest: collects items and the runs that ended in its session, and writes them as one summary on request.

A digest is a long-lived run. It collects signals `{"item": …}`; `{"write": true}`, which a schedule can send, makes one
digest of everything since the last one: an event, and with `webhook` also a delivery. A delivery is a child run with
its own attempts, so an address that is down delays nothing else. The whole clog is in this file.
"""

import json
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from ocean import Clog, Done, Failed, InvalidValue, Ok, Outcome, RetryPolicy, RunStatus, Tick

__all__ = ["as_text", "digest"]

MOST_ITEMS, LONGEST_ITEM = 300, 1_000
MOST_RUNS = 1_000
MOST_FAILURES = 50
DELIVERY = RetryPolicy(max_attempts=8, backoff_ms=10_000, backoff_max_ms=3_600_000, jitter=0.2)


class DigestSettings(BaseModel):
    """The input of a digest's run. Runs of `clogs` are counted; an empty digest is written only with `when_empty`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: Annotated[str, Field(max_length=200)] = "Digest"
    clogs: Annotated[list[str], Field(max_length=50)] = []
    webhook: Annotated[str, Field(max_length=2_000)] | None = None
    when_empty: bool = False


class DigestState(BaseModel):
    """The run's row. The alias is the name under which the settings are stored."""

    model_config = ConfigDict(serialize_by_alias=True)

    settings: DigestSettings = Field(validation_alias=AliasChoices("settings", "told"), serialization_alias="told")
    since: int
    items: list[Any] = []
    more_items: int = 0
    last: dict[str, Any] | None = None


digest = Clog(
    "digest",
    run_state=DigestState,
    inputs="all",
    tools=[
        "ocean.storage.read_scoped",
        "ocean.storage.write_scoped",
        "ocean.events.emit",
        "ocean.runs.list",
        "ocean.runs.create",
        "ocean.steps.run",
        "ocean.http.fetch",
    ],
)


@digest.on_advance
async def advance(tick: Tick) -> Outcome:
    if tick.run.parent_run_id is not None and isinstance(tick.input, dict) and "deliver" in tick.input:
        return await deliver(tick, **tick.input["deliver"])
    state: DigestState | None = (await tick.read(run=True)).run
    inputs = [each.body for each in tick.inputs]
    if state is None:
        try:
            settings = DigestSettings.model_validate(inputs.pop(0) if tick.reason == "created" else {})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "input"
            return Failed({"code": InvalidValue.code, "message": f"digest: {where}: {first['msg']}"})
        state = DigestState(settings=settings, since=tick.run.created_at)
    for body in inputs:
        signal = body if isinstance(body, dict) else {"item": body}
        if signal.get("write") is True:
            await write_digest(tick, state, _until(tick, signal))
        elif len(state.items) < MOST_ITEMS:
            state.items.append(_bounded(signal.get("item", signal)))
        else:
            state.more_items += 1
    await tick.write(run=state)
    return Ok()


async def write_digest(tick: Tick, state: DigestState, until: int) -> None:
    """Write one digest of everything since the last one, before `until`."""
    counts_runs = state.settings.clogs and until > state.since
    ended = await _ended(tick, state.settings.clogs, state.since, until) if counts_runs else {}
    made = {
        "title": state.settings.title,
        "from": state.since,
        "until": until,
        "items": state.items,
        "more_items": state.more_items,
        **ended,
    }
    state.since = max(until, state.since)
    if not (state.items or ended.get("done") or ended.get("failed") or state.settings.when_empty):
        return
    state.items, state.more_items, state.last = [], 0, made
    await tick.emit("digest.written", made)
    if state.settings.webhook is not None:
        await tick.create_run(
            clog_id="digest", input={"deliver": {"url": state.settings.webhook, "made": made}}, retry=DELIVERY
        )


async def deliver(tick: Tick, url: str, made: dict[str, Any]) -> Outcome:
    """Post the digest to the webhook: the only tick of a delivery, repeated as its attempts allow."""

    async def post(key: str) -> int:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        body = json.dumps({**made, "text": as_text(made)}).encode()
        response = await tick.fetch(url, method="POST", headers=headers, body=body)
        if not 200 <= response.status < 300:
            raise ConnectionError(f"the webhook responded with {response.status}")
        return response.status

    return Done({"status": await tick.step("post", post)})


@digest.method
async def last(tick: Tick, payload: Any) -> dict[str, Any] | None:
    """Return the last digest, with its text, or None."""
    state: DigestState | None = (await tick.read(run=True)).run
    return None if state is None or state.last is None else {**state.last, "text": as_text(state.last)}


def as_text(made: dict[str, Any]) -> str:
    """Return a digest as plain text."""
    lines = [made["title"]]
    lines += [f"- {item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)}" for item in made["items"]]
    if made["more_items"]:
        lines.append(f"- and {made['more_items']} more")
    if "done" in made:
        lines.append(f"{made['done']} done, {made['failed']} failed{' or more' if made['is_capped'] else ''}")
    lines += [f"- {each['clog_id']} {each['run_id']}: {each['code']}" for each in made.get("failures", [])]
    return "\n".join(lines)


async def _ended(tick: Tick, clogs: list[str], since: int, until: int) -> dict[str, Any]:
    """Return how many runs of this session ended in that time, and which failed."""
    page = await tick.list_runs(
        session_id=tick.session_id, clog_id=clogs, ended_from=since, ended_until=until, order="oldest", limit=MOST_RUNS
    )
    failed = [run for run in page.runs if run.status is RunStatus.FAILED]
    shown = [
        {"run_id": run.run_id, "clog_id": run.clog_id, "code": (run.error or {}).get("code")}
        for run in failed[:MOST_FAILURES]
    ]
    done = len(page.runs) - len(failed)
    return {"done": done, "failed": len(failed), "failures": shown, "is_capped": page.next_cursor is not None}


def _until(tick: Tick, signal: dict[str, Any]) -> int:
    """Return the intended time of the schedule that sent the signal, otherwise now."""
    times = signal.get("schedule")
    at = times.get("intended_at") if isinstance(times, dict) else None
    return at if isinstance(at, int) and at <= tick.now else tick.now


def _bounded(item: Any) -> Any:
    text = json.dumps(item, ensure_ascii=False).encode()
    return item if len(text) <= LONGEST_ITEM else f"{text[:LONGEST_ITEM].decode(errors='ignore')}…"
