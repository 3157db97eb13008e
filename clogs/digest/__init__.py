"""A digest: collects items, and what ended in its session, until it is told to write them up.

A digest is a run that lives. Signals `{"item": …}` are collected; `{"write": true}`, which a schedule sends, makes one
digest of everything since the last: an event, and if there is a webhook a delivery, which is a child with attempts of
its own, so that an address that is down costs nobody but itself.
"""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ocean import Clog, Done, Failed, InvalidValue, Ok, Outcome, RetryPolicy, RunStatus, Tick

__all__ = ["as_text", "digest"]

MOST_ITEMS, LONGEST_ITEM = 300, 1_000
MOST_RUNS = 1_000
MOST_FAILURES = 50
DELIVERY = RetryPolicy(max_attempts=8, backoff_ms=10_000, backoff_max_ms=3_600_000, jitter=0.2)


class DigestSettings(BaseModel):
    """`clogs`: whose ends are counted. A digest with nothing in it is written only with `when_empty`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: Annotated[str, Field(max_length=200)] = "Digest"
    clogs: Annotated[list[str], Field(max_length=50)] = []
    webhook: Annotated[str, Field(max_length=2_000)] | None = None
    when_empty: bool = False


class DigestState(BaseModel):
    told: DigestSettings
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
    notes: DigestState | None = (await tick.read(run=True)).run
    inputs = [each.body for each in tick.inputs]
    if notes is None:
        try:
            told = DigestSettings.model_validate(inputs.pop(0) if tick.reason == "created" else {})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "input"
            return Failed({"code": InvalidValue.code, "message": f"digest: {where}: {first['msg']}"})
        notes = DigestState(told=told, since=tick.run.created_at)
    for body in inputs:
        said = body if isinstance(body, dict) else {"item": body}
        if said.get("write") is True:
            await write_up(tick, notes, _until(tick, said))
        elif len(notes.items) < MOST_ITEMS:
            notes.items.append(_bounded(said.get("item", said)))
        else:
            notes.more_items += 1
    await tick.write(run=notes)
    return Ok()


async def write_up(tick: Tick, notes: DigestState, until: int) -> None:
    """One digest of what has come since the last one, before `until`."""
    is_asked = notes.told.clogs and until > notes.since
    ended = await _ended(tick, notes.told.clogs, notes.since, until) if is_asked else {}
    made = {
        "title": notes.told.title,
        "from": notes.since,
        "until": until,
        "items": notes.items,
        "more_items": notes.more_items,
        **ended,
    }
    notes.since = max(until, notes.since)
    if not (notes.items or ended.get("done") or ended.get("failed") or notes.told.when_empty):
        return
    notes.items, notes.more_items, notes.last = [], 0, made
    await tick.emit("digest.written", made)
    if notes.told.webhook is not None:
        await tick.create_run(
            clog_id="digest", input={"deliver": {"url": notes.told.webhook, "made": made}}, retry=DELIVERY
        )


async def deliver(tick: Tick, url: str, made: dict[str, Any]) -> Outcome:
    """Of a delivery: its one tick, as often as its attempts allow."""

    async def post(key: str) -> int:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        body = json.dumps({**made, "text": as_text(made)}).encode()
        answer = await tick.fetch(url, method="POST", headers=headers, body=body)
        if not 200 <= answer.status < 300:
            raise ConnectionError(f"the webhook answered {answer.status}")
        return answer.status

    return Done({"status": await tick.step("post", post)})


@digest.method
async def last(tick: Tick, payload: Any) -> dict[str, Any] | None:
    """The digest that was written last, and the same as text."""
    notes: DigestState | None = (await tick.read(run=True)).run
    return None if notes is None or notes.last is None else {**notes.last, "text": as_text(notes.last)}


def as_text(made: dict[str, Any]) -> str:
    """A digest for people."""
    lines = [made["title"]]
    lines += [f"- {item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)}" for item in made["items"]]
    if made["more_items"]:
        lines.append(f"- and {made['more_items']} more")
    if "done" in made:
        lines.append(f"{made['done']} done, {made['failed']} failed{' or more' if made['is_capped'] else ''}")
    lines += [f"- {each['clog_id']} {each['run_id']}: {each['code']}" for each in made.get("failures", [])]
    return "\n".join(lines)


async def _ended(tick: Tick, clogs: list[str], since: int, until: int) -> dict[str, Any]:
    """How many runs of this session ended in that time, and which failed."""
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


def _until(tick: Tick, said: dict[str, Any]) -> int:
    """The time for which a schedule asks, and else now."""
    times = said.get("schedule")
    at = times.get("intended_at") if isinstance(times, dict) else None
    return at if isinstance(at, int) and at <= tick.now else tick.now


def _bounded(item: Any) -> Any:
    text = json.dumps(item, ensure_ascii=False).encode()
    return item if len(text) <= LONGEST_ITEM else f"{text[:LONGEST_ITEM].decode(errors='ignore')}…"
