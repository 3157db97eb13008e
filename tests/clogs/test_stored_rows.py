"""The rows of the clogs keep the field names under which earlier versions have stored them."""

from typing import Any

import pytest
from pydantic import BaseModel

from clogs.digest import DigestState
from clogs.http_poller import PollerState
from clogs.loop.records import Issue
from clogs.schedule.state import ScheduleState

SPEC = {"every_ms": 60_000, "target": {"clog_id": "job"}}
KEPT = {"key": {"run_id": "r", "until": 5}}
ISSUE = {"title": "t", "plan": "p", "state": "S", "next": 1, "created_at": 0, "created_by": "ann", "answers": KEPT}


@pytest.mark.parametrize(
    ("model", "stored", "name"),
    [
        (DigestState, {"told": {"title": "Today"}, "since": 1}, "told"),
        (PollerState, {"told": {"url": "https://page.example/"}}, "told"),
        (ScheduleState, {"told": SPEC, "created_at": 0, "last_at": 0}, "told"),
        (Issue, ISSUE, "answers"),
    ],
)
def test_a_stored_row_is_read_and_written_under_the_same_names(
    model: type[BaseModel], stored: dict[str, Any], name: str
) -> None:
    written = model.model_validate(stored).model_dump(mode="json")
    assert stored[name].items() <= written[name].items()
    assert stored.keys() <= written.keys()
    assert model.model_validate(written).model_dump(mode="json") == written
