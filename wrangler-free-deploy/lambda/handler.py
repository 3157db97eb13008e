"""AWS Lambda: an event is a poke, whatever it says: a schedule, messages of a queue, a test from the console.

Each does what is due within the time that the function has left, and answers in JSON what it did. Handlers still at
work shortly before that time is over are cancelled and their runs given back, so that nothing is half done when the
process is frozen or killed. What an environment keeps from one event to the next is the imported code. The database
is opened for one event and closed with it: an open file would be frozen too, while others change it.
"""

import os
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import anyio

from ocean import AdvanceResult, Ocean
from ocean.config import BadSettings, load_clogs, read_settings

MARGIN_MS = 3_000
"""To give runs back, to close the database and to answer."""

if not os.environ.get("OCEAN_DB"):
    raise BadSettings("OCEAN_DB is not set; name a file on a disk that outlives the function, as EFS does")
SETTINGS = read_settings(None, None, environ=os.environ, folder=Path.cwd())
CLOGS = load_clogs(SETTINGS, Path.cwd())


class Context(Protocol):
    """What is used of Lambda's context."""

    def get_remaining_time_in_millis(self) -> int: ...


def poke(event: Any, context: Context) -> dict[str, Any]:
    """The function's handler. An error of the database is raised: then the event has failed, and Lambda says so."""
    poked = anyio.run(_advance, context) if _left_ms(context) > 0 else None
    answer: dict[str, Any] = _summary(poked) if poked else {"advanced": 0, "tooLittleTime": True}
    if _is_from_a_queue(event):
        # A message is a poke that was asked for: one that could not be made comes again.
        unmade = [] if poked else [{"itemIdentifier": record["messageId"]} for record in event["Records"]]
        answer["batchItemFailures"] = unmade
    return answer


def _left_ms(context: Context) -> int:
    return max(0, context.get_remaining_time_in_millis() - MARGIN_MS)


async def _advance(context: Context) -> AdvanceResult:
    async with Ocean.open(SETTINGS.db, clogs=CLOGS) as ocean:
        left = _left_ms(context)
        # Claiming ends at half of it: the handler that was called last has as much again.
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
