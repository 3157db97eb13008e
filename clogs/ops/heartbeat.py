"""The totals of the work done in a project, and how much of it a reader has not seen yet."""

from clogs.ops.records import HEART, Row, publish
from ocean import Clog, Tick

TOTALS = ("events", "queued", "processed", "created", "requeued", "failed", "stale")
"""The names of the totals. Each process counts its own work."""

heart = Clog(HEART, generic=())

THOUGHT = "{events} events processed, {queued} reactions queued, {created} proposals created, {requeued} steps requeued"


@heart.method
async def totals_since_last_read(tick: Tick, reader: str) -> Row:
    """Return the totals since the last call of this reader, so that each piece of work is reported once.

    If there was any, the heartbeat publishes it as an event that triggers nothing; `thought` is its id.
    """
    rows = await tick.read(session=True)
    kept = rows.session or {}
    before = kept.get(reader, {})
    now = {what: (await tick.take(total_key(tick.session_id, what), 0)).used for what in TOTALS}
    await tick.write(session={**kept, reader: now})
    since = {what: now[what] - before.get(what, 0) for what in TOTALS}
    thought = None
    if reader == "heartbeat" and any(since.values()):
        data = {"agent": "heartbeat", "thought": THOUGHT.format(**since), "tags": ["heartbeat"], **since}
        thought = await publish(tick, "agent:thought", data, is_own=True)
    return {**since, "thought": thought}


async def count(tick: Tick, what: str, n: int = 1) -> None:
    """Add to a total, in this commit."""
    if n:
        await tick.take(total_key(tick.session_id, what), n)


def total_key(project: str, what: str) -> str:
    return f"ops:{project}:total:{what}"
