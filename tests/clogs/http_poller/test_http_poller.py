"""A change is reported once; an unchanged page, a failing page and a crash report nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from clogs.http_poller import http_poller
from ocean import Clog, Done, Ok, Outcome, RunInfo, RunStatus, Tick
from ocean.testing import Outside, World, crash_everywhere, world
from tests.clogs.sites import Reply, Site, SiteRequest, a_site
from tests.invariants import check

pytestmark = pytest.mark.anyio

EVERY = 60_000
reader = Clog("reader")
kept = Clog("kept", generic=["call"])


@reader.on_advance
async def read(tick: Tick) -> Outcome:
    return Done(tick.input) if tick.reason == "created" else Ok()


@asynccontextmanager
async def polling(*hosts: str) -> AsyncIterator[World]:
    async with world(clogs=[http_poller, reader, kept], private_hosts=hosts) as w:
        yield w
        await check(w)


async def start(w: World, site: Site, **fields: Any) -> str:
    input = {"url": site.url, "every_ms": EVERY} | fields
    run = await w.ocean.create_run(session_id="s", clog_id="http-poller", input=input)
    await w.drain()
    return run.run_id


async def look(w: World, run_id: str) -> RunInfo:
    run = await w.ocean.get_run(run_id)
    assert run is not None
    return run


async def emitted(w: World, type: str) -> list[Any]:
    return [event.payload for event in await w.ocean.read_events(types=[type])]


def with_etag(body: bytes, etag: str) -> Any:
    def answer(request: SiteRequest) -> Reply:
        is_known = request.headers.get("if-none-match") == etag
        return Reply(304) if is_known else Reply(200, body, {"ETag": etag, "Last-Modified": "yesterday"})

    return answer


async def test_a_change_makes_an_event_and_a_run_and_an_unchanged_page_makes_none() -> None:
    with a_site() as site:
        site.answer = with_etag(b"one", '"1"')
        async with polling(site.host) as w:
            run_id = await start(w, site, clog_id="reader")
            await w.wait(3 * EVERY)
            assert [request.headers.get("if-none-match") for request in site.requests] == [None, '"1"', '"1"', '"1"']
            assert site.requests[1].headers["if-modified-since"] == "yesterday"
            assert await emitted(w, "poller.changed") == []
            site.answer = with_etag(b"two", '"2"')
            await w.wait(2 * EVERY)
            (change,) = await emitted(w, "poller.changed")
            assert (change["bytes"], change["etag"], change["first"]) == (3, '"2"', False)
            (made,) = (await w.ocean.list_runs(clog_id="reader")).runs
            assert (made.output["body"], made.output["poller_id"], made.parent_run_id) == ("two", run_id, run_id)
            assert (await look(w, run_id)).attributes == {"changes": 1, "failures": 0}


async def test_a_page_without_an_etag_is_compared_by_content() -> None:
    with a_site(Reply(body=b"a"), Reply(body=b"a"), Reply(body=b"b"), Reply(body=b"b")) as site:
        async with polling(site.host) as w:
            await start(w, site, first=True)
            await w.wait(4 * EVERY)
            assert [change["first"] for change in await emitted(w, "poller.changed")] == [True, False]


async def test_the_interval_grows_while_a_page_fails_and_is_then_restored() -> None:
    with a_site(Reply(body=b"a"), Reply(500), Reply(404), Reply(429, headers={"Retry-After": "900"}), Reply()) as site:
        async with polling(site.host) as w:
            begin = w.clock.now()
            run_id = await start(w, site)
            looks: list[int] = []
            while len(looks) < 5:
                wake_at = (await look(w, run_id)).wake_at
                assert wake_at is not None
                looks.append((wake_at - begin) // EVERY)
                await w.wait(wake_at - w.clock.now())
            assert looks == [1, 3, 7, 22, 23]
            assert await emitted(w, "poller.failing") == [{"error": "the server responded with 500"}]
            assert await emitted(w, "poller.recovered") == [{"failures": 3}]
            assert len(await emitted(w, "poller.changed")) == 1


async def test_an_unreachable_server_is_a_failure_and_does_not_end_the_poller() -> None:
    with a_site() as site:
        pass
    async with polling(site.host) as w:
        run_id = await start(w, site)
        run = await look(w, run_id)
        assert (run.status, run.attributes["failures"]) == (RunStatus.WAITING, 1)
        assert run.wake_at == w.clock.now() + 2 * EVERY


async def test_a_signal_requests_the_page_at_once() -> None:
    with a_site() as site:
        async with polling(site.host) as w:
            run_id = await start(w, site)
            await w.ocean.signal(run_id)
            await w.drain()
            assert len(site.requests) == 2


async def test_a_run_is_signalled_and_when_it_has_ended_so_does_the_poller() -> None:
    with a_site(Reply(body=b"a"), Reply(body=b"b"), Reply(body=b"c")) as site:
        async with polling(site.host) as w:
            await w.ocean.create_run(session_id="s", clog_id="reader", run_id="target")
            run_id = await start(w, site, run_id="target")
            await w.wait(EVERY)
            (signal,) = await w.ocean.list_inputs("target")
            assert signal.body["body"] == "b"
            await w.ocean.cancel_run("target")
            await w.wait(EVERY)
            assert (await look(w, run_id)).output == {"reason": "target_ended", "changes": 2}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"every_ms": 999}, "invalid_value", "every_ms: Input should be greater"),
    ({"clog_id": "reader", "run_id": "r"}, "invalid_value", "must not both be given"),
    ({"clog_id": "raeder"}, "unknown_clog", "did you mean 'reader'?"),
    ({"clog_id": "kept"}, "not_generic", "allows 'create' only through"),
    ({"run_id": "elsewhere"}, "invalid_value", "there is no run 'elsewhere' in this session"),
    ({"url": "ftp://files.example/"}, "fetch_refused", "must be http or https"),
    ({"url": "http://127.0.0.1:1/"}, "fetch_refused", "the operator may allow"),
]


async def test_a_permanent_error_fails_the_poller_at_once_with_the_reason() -> None:
    with a_site() as site:
        async with polling(site.host) as w:
            await w.ocean.create_run(session_id="another's", clog_id="reader", run_id="elsewhere")
            for fields, code, message in WRONG:
                error = (await look(w, await start(w, site, **fields))).error
                assert error is not None
                assert (error["code"], message in error["message"]) == (code, True)
    assert site.requests == []


@pytest.mark.sqlite
async def test_a_crash_at_any_place_reports_a_change_once() -> None:
    def outside() -> Outside:
        made = Outside()
        made.answer("GET https://page.example/", "a page")
        return made

    async def scenario(w: World) -> Any:
        input = {"url": "https://page.example/", "every_ms": EVERY, "clog_id": "reader", "first": True}
        await w.ocean.create_run(session_id="s", clog_id="http-poller", input=input)
        await w.drain()

    report = await crash_everywhere([http_poller, reader], scenario, outside=outside)
    assert report.killed
