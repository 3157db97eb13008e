"""The heartbeat's memory: what was done since it was last told, whoever did it."""

from clogs.ops.records import HEART, Row, publish
from ocean import Clog, Tick

TOTALS = ("events", "queued", "processed", "created", "requeued", "failed", "stale")
"""What is counted, by whoever does it."""

heart = Clog(HEART, generic=())

THOUGHT = "{events} events looked at, {queued} reactions queued, {created} proposals made, {requeued} steps requeued"


@heart.method
async def told(tick: Tick, reader: str) -> Row:
    """The work since this reader was last told, each piece to one telling only.

    If there was any, the heartbeat thinks about it aloud, in an event that triggers nothing: `thought` is its id.
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
    """Add to a total, with this commit."""
    if n:
        await tick.take(total_key(tick.session_id, what), n)


def total_key(project: str, what: str) -> str:
    return f"ops:{project}:total:{what}"
