"""Every item since the last digest is in the next one, once; and a webhook that is down blocks nothing."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from clogs.digest import LONGEST_ITEM, MOST_ITEMS, digest
from clogs.schedule import schedule
from ocean import Clog, Done, Failed, Outcome, RunStatus, Tick
from ocean.testing import Outside, World, crash_everywhere, world
from tests.clogs.sites import Reply, a_site
from tests.invariants import check

pytestmark = pytest.mark.anyio

HOUR = 3_600_000
job = Clog("job")


@job.on_advance
async def do(tick: Tick) -> Outcome:
    return Done() if tick.input == "fine" else Failed({"code": "broken", "message": "it broke"})


@asynccontextmanager
async def collecting(details: dict[str, Any] | None = None, *hosts: str) -> AsyncIterator[World]:
    async with world(clogs=[digest, schedule, job], private_hosts=hosts) as w:
        w.clock.advance(-w.clock.now() % HOUR)
        await w.ocean.create_run(session_id="s", clog_id="digest", run_id="d", input=details or {})
        await w.drain()
        yield w
        await check(w)


async def say(w: World, *bodies: Any) -> None:
    for body in bodies:
        await w.ocean.signal("d", body)
    await w.drain()


async def written(w: World) -> list[Any]:
    return [event.payload for event in await w.ocean.read_events("d", types=["digest.written"])]


async def test_a_schedule_makes_a_digest_of_everything_since_the_last() -> None:
    async with collecting() as w:
        begin = w.clock.now()
        details = {
            "cron": "0 * * * *",
            "target": {"run_id": "d", "input": {"write": True}, "times_as": "schedule"},
        }
        await w.ocean.call_clog(clog_id="schedule", session_id="s", method="add", payload=details)
        await say(w, {"item": "one"}, "two")
        await w.wait(HOUR)
        await say(w, {"item": {"n": 3}})
        await w.wait(3 * HOUR)
        first, second = await written(w)
        assert (first["from"], first["until"], first["items"]) == (begin, begin + HOUR, ["one", "two"])
        assert (second["from"], second["until"], second["items"]) == (begin + HOUR, begin + 2 * HOUR, [{"n": 3}])
        last = await w.ocean.call_clog(run_id="d", method="last")
        assert last["text"] == 'Digest\n- {"n": 3}'


async def test_runs_that_ended_in_its_session_are_counted_once_and_failures_named() -> None:
    async with collecting({"clogs": ["job"], "title": "Jobs"}) as w:
        for session, input in (("s", "fine"), ("s", "bad"), ("other", "bad")):
            await w.ocean.create_run(session_id=session, clog_id="job", input=input, run_id=f"{session}-{input}")
        await w.drain()
        w.clock.advance(HOUR)
        await say(w, {"write": True})
        w.clock.advance(HOUR)
        await say(w, {"write": True})
        (only,) = await written(w)
        assert (only["done"], only["failed"], only["is_capped"]) == (1, 1, False)
        assert only["failures"] == [{"run_id": "s-bad", "clog_id": "job", "code": "broken"}]
        last = await w.ocean.call_clog(run_id="d", method="last")
        assert last["text"] == "Jobs\n1 done, 1 failed\n- job s-bad: broken"


async def test_an_empty_digest_is_written_only_with_when_empty() -> None:
    for when_empty in (False, True):
        async with collecting({"when_empty": when_empty}) as w:
            await say(w, {"write": True})
            assert len(await written(w)) == int(when_empty)


async def test_excess_items_are_counted_and_long_ones_are_cut() -> None:
    async with collecting() as w:
        await say(w, "é" * 5_000, *range(MOST_ITEMS + 4), {"write": True})
        (made,) = await written(w)
        assert (len(made["items"]), made["more_items"]) == (MOST_ITEMS, 5)
        assert len(made["items"][0].encode()) <= LONGEST_ITEM + 3


async def test_a_webhook_gets_each_digest_and_one_that_is_down_stops_nothing() -> None:
    with a_site(Reply(500), Reply(500), Reply(200)) as site:
        async with collecting({"webhook": site.url}, site.host) as w:
            await say(w, "one", {"write": True})
            run = await w.ocean.get_run("d")
            assert run is not None
            assert run.status is RunStatus.IDLE
            await w.wait(HOUR)
            (delivery,) = (await w.ocean.list_runs(parent_run_id="d")).runs
            assert (delivery.output, len(site.requests)) == ({"status": 200}, 3)
    assert json.loads(site.requests[2].body)["text"] == "Digest\n- one"
    assert len({request.headers["idempotency-key"] for request in site.requests}) == 1


async def test_a_digest_with_invalid_settings_fails_with_the_reason() -> None:
    async with collecting() as w:
        for input, content in (
            ({"colour": "red"}, "digest: colour: Extra"),
            ({"deliver": {}}, "digest: deliver"),
            (3, ""),
        ):
            made = await w.ocean.create_run(session_id="s", clog_id="digest", input=input)
            await w.drain()
            run = await w.ocean.get_run(made.run_id)
            assert run is not None
            assert run.error is not None
            assert (run.error["code"], content in run.error["message"]) == ("invalid_value", True)


@pytest.mark.sqlite
async def test_a_crash_at_any_place_neither_loses_nor_doubles_an_item() -> None:
    def outside() -> Outside:
        made = Outside()
        made.answer("POST https://hook.example/", {})
        return made

    async def scenario(w: World) -> None:
        await w.ocean.create_run(
            session_id="s", clog_id="digest", run_id="d", input={"webhook": "https://hook.example/"}
        )
        await say(w, "one", "two", {"write": True})

    report = await crash_everywhere([digest], scenario, outside=outside)
    assert report.killed
