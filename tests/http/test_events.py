"""Feeds over HTTP: the same pages as in Python, and a stream for clients that accept one."""

from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ocean import Ocean
from ocean.http.framework.call import StillAllowed
from ocean.http.framework.responses import record
from ocean.state.filters import FeedFilter
from tests.http.kit import AppWorld, app_world, error_of

pytestmark = pytest.mark.anyio

STREAM = {"accept": "text/event-stream"}


@pytest.mark.parametrize(
    ("path", "feed"),
    [
        ("/v1/events", {}),
        ("/v1/runs/r/events", {"run_id": "r"}),
        ("/v1/sessions/s/events", {"session_id": "s"}),
        ("/v1/clogs/c/events", {"clog_id": "c"}),
    ],
)
@pytest.mark.parametrize(
    ("query", "more"),
    [
        ({}, {}),
        ({"limit": 2}, {"limit": 2}),
        ({"after": 3}, {"after": 3}),
        ({"types": ["said", "run.created"]}, {"types": ["said", "run.created"]}),
        ({"correlationId": "r"}, {"correlation_id": "r"}),
    ],
    ids=str,
)
async def test_a_page_is_what_python_reads(h: AppWorld, path: str, feed: Any, query: Any, more: Any) -> None:
    await h.new_run({"say": {"a_b": 1}}, run_id="r")
    await h.new_run({"done": 1})
    await h.w.drain()
    events = await h.w.ocean.read_events(**feed, **more)
    page = await h.get_json(path, **query)
    assert page["events"] == [record(event) | {"id": event.id} for event in events]
    assert page["nextCursor"] == (events[-1].seq if events else query.get("after", 0))


async def test_pages_continue_until_the_end(h: AppWorld) -> None:
    await h.new_run({"more": {"say": 1}}, run_id="r")
    await h.w.drain()
    seen, cursor = [], 0
    while (page := await h.get_json("/v1/runs/r/events", after=cursor, limit=2))["events"]:
        seen += [event["seq"] for event in page["events"]]
        cursor = page["nextCursor"]
    assert seen == [event.seq for event in await h.w.ocean.read_events("r")]
    assert page["nextCursor"] == cursor


async def test_a_cursor_of_another_log_is_refused(h: AppWorld) -> None:
    assert error_of(await h.get("/v1/events", after=999))["code"] == "bad_cursor"
    assert error_of(await h.get("/v1/events", after=-1))["code"] == "invalid_query"
    assert error_of(await h.get("/v1/events", types=""))["code"] == "invalid_value"


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        (["text/event-stream"], 406),
        (["application/json, Text/Event-Stream; q=0.5"], 406),
        (["application/json", "text/event-stream;q=0.01"], 406),
        (["text/event-stream;q=0"], 200),
        (["application/json, text/event-stream; q=0.000"], 200),
        (["text/event-stream;q=0;x=1, */*"], 200),
        (["*/*"], 200),
        ([], 200),
    ],
)
async def test_clients_that_accept_a_stream_get_one(accept: list[str], status: int) -> None:
    async with app_world(stream=None) as h:
        response = await h.http.get("/v1/events", headers=[("accept", each) for each in accept])
        assert response.status_code == status


async def test_after_latest_selects_only_future_events(h: AppWorld) -> None:
    await h.new_run({"say": 1})
    last = await h.w.ocean.last_cursor()
    assert await h.get_json("/v1/events", after="latest") == {"events": [], "nextCursor": last}
    await h.new_run({"say": 1}, run_id="r")
    page = await h.get_json("/v1/events", after=last)
    assert [event["runId"] for event in page["events"]] == ["r"]


async def test_a_server_without_streams_refuses_them() -> None:
    async with app_world(stream=None) as h:
        response = await h.http.get("/v1/events", headers=STREAM)
    assert (response.status_code, error_of(response)["code"]) == (406, "not_acceptable")


async def test_the_stream_of_a_run_that_has_ended_is_its_whole_log() -> None:
    async with app_world() as h:
        await h.new_run({"done": 1}, run_id="r")
        await h.w.drain()
        with anyio.fail_after(20):
            response = await h.http.get("/v1/runs/r/events", headers=STREAM)
        assert response.headers["content-type"].startswith("text/event-stream")
        ids = [line.partition(":")[2].strip() for line in response.text.splitlines() if line.startswith("id:")]
        assert ids == ["0", *(str(event.seq) for event in await h.w.ocean.read_events("r"))]


async def test_a_stream_is_requested_with_accept_and_begins_after_the_last_event_id() -> None:
    requests: list[Any] = []

    async def stream(
        ocean: Ocean, request: Request, where: FeedFilter, after: int, still_may: StillAllowed
    ) -> Response:
        requests.append((where, after))
        return PlainTextResponse("streamed")

    async with app_world(stream=stream) as h:
        page = await h.http.get("/v1/events", headers={"accept": "application/json, */*"})
        await h.new_run()
        assert (page.json()["events"], page.headers["vary"]) == ([], "Accept")
        for path, headers in (
            ("/v1/runs/r/events?after=7&types=a&types=b", {}),
            ("/v1/sessions/s/events?after=7", {"last-event-id": "9"}),
            ("/v1/clogs/c/events", {"accept": "text/event-stream;q=0.9, text/html"}),
            ("/v1/events?after=latest", {}),
        ):
            assert (await h.http.get(path, headers=STREAM | headers)).text == "streamed"
        assert requests == [
            (FeedFilter(run_id="r", types=("a", "b")), 7),
            (FeedFilter(session_id="s"), 9),
            (FeedFilter(clog_id="c"), 0),
            (FeedFilter(), await h.w.ocean.last_cursor()),
        ]
        for wrong in ("x", "-1", "1.5"):
            response = await h.http.get("/v1/events", headers=STREAM | {"last-event-id": wrong})
            assert (response.status_code, error_of(response)["code"]) == (400, "invalid_query")
