"""The AWS Lambda function: every event is a poke, whether from a schedule, a queue or the console.

Each event runs due work within the function's remaining time and returns a summary as JSON. Handlers still running
shortly before the end are cancelled and their runs given back, so that nothing is half done when the process is
frozen or killed. Only the imported code is kept between events. The database is opened for one event and closed with
it, because an open file would be frozen too while other processes change it.
"""

import os
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import anyio

from ocean import AdvanceResult, Ocean
from ocean.config import BadSettings, load_clogs, read_settings

MARGIN_MS = 3_000
"""Time reserved to give runs back, close the database and return."""

if not os.environ.get("OCEAN_DB"):
    raise BadSettings("OCEAN_DB is not set; name a file on a disk that outlives the function, as EFS does")
SETTINGS = read_settings(None, None, environ=os.environ, folder=Path.cwd())
CLOGS = load_clogs(SETTINGS, Path.cwd())


class Context(Protocol):
    """The part of Lambda's context that is used."""

    def get_remaining_time_in_millis(self) -> int: ...


def poke(event: Any, context: Context) -> dict[str, Any]:
    """Handle an event. Errors of the database are raised, so that Lambda records the event as failed."""
    poked = anyio.run(_advance, context) if _left_ms(context) > 0 else None
    result: dict[str, Any] = _summary(poked) if poked else {"advanced": 0, "tooLittleTime": True}
    if _is_from_a_queue(event):
        # A message is a requested poke: the queue delivers those that were not made again.
        not_made = [] if poked else [{"itemIdentifier": record["messageId"]} for record in event["Records"]]
        result["batchItemFailures"] = not_made
    return result


def _left_ms(context: Context) -> int:
    return max(0, context.get_remaining_time_in_millis() - MARGIN_MS)


async def _advance(context: Context) -> AdvanceResult:
    async with Ocean.open(SETTINGS.db, clogs=CLOGS) as ocean:
        left = _left_ms(context)
        # Claiming ends at half of the time, so that the last handler has the other half.
        return await ocean.advance(budget_ms=left // 2, hard_ms=left)


def _summary(poked: AdvanceResult) -> dict[str, Any]:
    return {
        "advanced": poked.advanced,
        "outcomes": dict(Counter(result.outcome for result in poked.outcomes)),
        "dueNow": poked.due_now,
        "nextWakeAt": poked.next_wake_at,
        "oldestDueAgeMs": poked.oldest_due_age_ms,
        "unclaimable": poked.unclaimable,
    }


def _is_from_a_queue(event: Any) -> bool:
    records = event.get("Records") if isinstance(event, dict) else None
    return isinstance(records, list) and bool(records) and records[0].get("eventSource") == "aws:sqs"
