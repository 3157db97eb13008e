"""`Outside`: responds, keeps every call, distinguishes effects from repeats, and can be recorded and replayed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ocean import Done, FetchRefused, FetchResponse, Outcome, RunStatus, Tick
from ocean.testing import Outside, OutsideCall, World, world
from tests.testing.shops import CHARGE, URL, charges_in_a_step, clog_of, paying

pytestmark = pytest.mark.anyio


async def ended(w: World, input: Any = None) -> Any:
    """Run the clog `c`; return its output, or the code of its error."""
    run = await w.ocean.create_run(session_id="s", clog_id="c", input=input)
    await w.wait(60_000)
    info = await w.ocean.get_run(run.run_id)
    assert info is not None
    return info.output if info.status is RunStatus.DONE else (info.error or {})["code"]


async def test_calls_are_kept_with_their_keys_and_effects_counted_once_for_each_key() -> None:
    outside = paying()

    async def asks_three_times(tick: Tick) -> Outcome:
        for key in ("a", "a", "b"):
            await tick.fetch(URL, method="POST", headers={"idempotency-KEY": key}, body=b'{"amount": 40}')
        await tick.fetch(URL, method="POST", body=b"no key")
        await tick.fetch(URL, method="POST", body=b"no key")
        return Done()

    async with world([clog_of(asks_three_times)], outside=outside) as w:
        await ended(w)
    assert [(call.key, call.body, call.is_repeat) for call in outside.calls] == [
        ("a", {"amount": 40}, False),
        ("a", {"amount": 40}, True),
        ("b", {"amount": 40}, False),
        (None, "no key", False),
        (None, "no key", False),
    ]
    assert [call.key for call in outside.effects(CHARGE)] == ["a", "b", None, None]
    assert outside.effects("POST https://elsewhere.example/") == []


async def test_a_step_is_kept_with_the_key_that_its_function_got() -> None:
    async with world([clog_of(charges_in_a_step)], outside=paying()) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input={})
        await w.drain()
        key = f"{run.run_id}:1:c/charge"
        assert [(call.kind, call.name, call.key, call.is_effect) for call in w.outside.calls] == [
            ("fetch", CHARGE, key, True),
            ("step", "c/charge", key, False),
        ]
        assert w.outside.calls[1].answer == {"id": "ch_1"}


async def test_a_repeated_key_gets_the_first_response_and_with_another_body_a_refusal() -> None:
    outside, numbers = Outside(), iter(range(9))
    outside.answer(CHARGE, lambda request: {"n": next(numbers)})

    async def asks(tick: Tick) -> Outcome:
        responses = []
        for body in (b"1", b"1", b"2"):
            answer = await tick.fetch(URL, method="POST", headers={"Idempotency-Key": "k"}, body=body)
            responses.append([answer.status, answer.json()])
        return Done(responses)

    async with world([clog_of(asks)], outside=outside) as w:
        refusal = {"error": "this idempotency key was used before with another body"}
        assert await ended(w) == [[200, {"n": 0}], [200, {"n": 0}], [409, refusal]]
    assert len(outside.effects()) == 1


async def fetches(tick: Tick) -> Outcome:
    answer = await tick.fetch(tick.input)
    return Done([answer.status, answer.text])


async def test_an_answer_is_a_value_a_response_a_function_or_an_error_and_the_newest_match_wins() -> None:
    async def greet(request: Any) -> str:
        return f"hello {request.url[-3:]}"

    outside = Outside()
    outside.answer("GET https://a.example/*", greet)
    outside.answer("GET https://a.example/gone", FetchResponse(410, {}, b"gone", "https://a.example/gone"))
    outside.answer("GET https://a.example/down", FetchRefused("no route", reason="connection", url="…"))
    outside.answer("GET https://a.example/x?y=[1]", {"ok": True})
    async with world([clog_of(fetches)], outside=outside) as w:
        assert await ended(w, "https://a.example/ada") == [200, '"hello ada"']
        assert await ended(w, "https://a.example/gone") == [410, "gone"]
        assert await ended(w, "https://a.example/down") == "fetch_refused"
        assert await ended(w, "https://a.example/x?y=[1]") == [200, '{"ok":true}']
    assert outside.effects() == [], "reading changes nothing"


async def test_a_request_without_a_defined_answer_is_refused_as_if_there_were_no_server() -> None:
    outside = Outside()
    async with world([clog_of(fetches)], outside=outside) as w:
        assert await ended(w, "https://nobody.example/") == "fetch_refused"
    assert outside.unanswered == ["GET https://nobody.example/"] * 3


async def test_a_fake_client_counts_effects_by_key_too() -> None:
    outside = Outside()
    results = [
        await outside.call("charge", {"amount": 1}, key="k", answer="first"),
        await outside.call("charge", {"amount": 1}, key="k", answer="second"),
        await outside.call("charge", {"amount": 1}, answer="third"),
    ]
    assert results == ["first", "first", "third"]
    assert len(outside.effects("charge")) == 2


async def test_a_recording_repeats_its_responses_and_calls_no_function_of_a_step(tmp_path: Path) -> None:
    called: list[str] = []

    async def pick(key: str) -> int:
        called.append(key)
        return len(called)

    async def works(tick: Tick) -> Outcome:
        picked: int = await tick.step("pick", pick)
        answer = await tick.fetch(URL, method="POST", body=f"{picked}".encode())
        return Done([picked, answer.status, answer.body.hex(), answer.headers])

    outside = Outside()
    outside.answer(CHARGE, FetchResponse(201, {"x": "y"}, b"\xff\x00", URL))
    async with world([clog_of(works)], outside=outside) as w:
        first = [await ended(w), await ended(w)]
    outside.save(tmp_path / "calls.json")
    assert len(called) == 2

    replayed = Outside.load(tmp_path / "calls.json")
    async with world([clog_of(works)], outside=replayed) as w:
        assert [await ended(w), await ended(w)] == first == [[n, 201, "ff00", {"x": "y"}] for n in (1, 2)]
        assert await ended(w) == "fetch_refused"
    assert len(called) == 2
    assert replayed.unanswered == ["step c/pick"] * 3


async def test_calls_can_be_saved_to_a_file_and_loaded(tmp_path: Path) -> None:
    outside = Outside()
    await outside.call("charge", {"ä": [1, None]}, key="k", answer={"id": 1})
    outside.save(str(tmp_path / "calls.json"))
    await Outside.load(str(tmp_path / "calls.json")).call("charge", {"ä": [1, None]})
    assert outside.calls == [OutsideCall("call", "charge", {"ä": [1, None]}, "k", {"id": 1})]
    again = Outside.load(tmp_path / "calls.json")
    assert await again.call("charge", {"ä": [1, None]}, key="other") == {"id": 1}


class Greeter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def served() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Greeter) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


async def test_a_live_outside_calls_the_real_service_and_its_recording_can_be_replayed() -> None:
    with served() as port:
        outside = Outside(live=True, private_hosts=[f"127.0.0.1:{port}"])
        async with world([clog_of(fetches)], outside=outside) as w:
            assert await ended(w, f"http://127.0.0.1:{port}/") == [200, "hi"]
    async with world([clog_of(fetches)], outside=Outside(outside.calls)) as w:
        assert await ended(w, f"http://127.0.0.1:{port}/") == [200, "hi"]
