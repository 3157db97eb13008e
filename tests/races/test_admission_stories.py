"""What a hostile review found in who may run when, and who does the running: each told as it happened."""

from typing import Any

import pytest

from ocean import Clog, InvalidValue
from tests.lifecycle.acting import Script, stage

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("queue", ["\ud800", b"gpu", float("nan"), ["gpu"], "", "a\x00b"])
async def test_a_queue_that_is_no_name_is_refused_before_it_is_hashed(queue: Any) -> None:
    async with stage(Script(), Clog("outside", external=True)) as w:
        for clog_id in ("c", "outside"):
            with pytest.raises(InvalidValue, match="queue must be|queue contains"):
                await w.ocean.create_run(session_id="s", clog_id=clog_id, input=1, queue=queue)
        assert (await w.ocean.count_runs()).count == 0


@pytest.mark.parametrize("after", [[], {}, None, 0, False, b""])
async def test_what_is_empty_but_no_text_is_no_place_in_the_list_of_keys(after: Any) -> None:
    async with stage(Script()) as w:
        with pytest.raises(InvalidValue, match="after must be a non-empty string"):
            await w.ocean.list_keys(after=after)
