"""An OpenAI-compatible endpoint over a real socket: requests, responses, and every failure."""

import socket
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from starlette.responses import Response, StreamingResponse

from clogs.models import Ask, Message, ModelAnswer, ModelEnd, ModelError, ModelToolCall, Text, Usage, whole_answer
from clogs.models.endpoint import MOST_SHOWN, Endpoint
from ocean import Failed, Retry
from tests.clogs.models.speaking import DONE, HELLO, PATIENCE_S, WEATHER, Speaker, called, event, speaking, sse_chunk

# Models use no store: one back end is enough.
pytestmark = [pytest.mark.anyio, pytest.mark.sqlite]

SECRET = "sk-very-secret-4711"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
async def speaker(anyio_backend: Any) -> AsyncIterator[Speaker]:
    async with speaking() as made:
        yield made


async def refused(endpoint: Endpoint, ask: Ask = HELLO) -> ModelError:
    with anyio.fail_after(PATIENCE_S), pytest.raises(ModelError) as raised:
        await whole_answer(endpoint, ask)
    return raised.value


async def test_an_answer_arrives_while_the_endpoint_still_streams(speaker: Speaker) -> None:
    received, gone = anyio.Event(), anyio.Event()

    async def say() -> Response:
        async def body() -> AsyncIterator[str]:
            try:
                yield sse_chunk("one ")
                await received.wait()
                yield sse_chunk("two")
                await anyio.sleep_forever()
            finally:
                gone.set()

        return StreamingResponse(body(), media_type="text/event-stream")

    speaker.say = say
    with anyio.fail_after(PATIENCE_S):
        async with speaker.endpoint().answer(HELLO) as pieces:
            assert await anext(aiter(pieces)) == Text(text="one ")
            received.set()
            assert await anext(aiter(pieces)) == Text(text="two")
        await gone.wait()  # leaving the context closes the connection


async def test_the_request_contains_every_field_of_the_ask(speaker: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", f" {SECRET}\n")
    speaker.streams(
        sse_chunk("fine", "stop"), event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 2}), DONE
    )
    call = ModelToolCall(id="c1", name="weather", arguments='{"city": "Oslo"}')
    ask = Ask(
        messages=(
            Message(role="system", content="be brief"),
            Message(role="user", content="rain?"),
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content="dry", tool_call_id="c1"),
        ),
        tools=(WEATHER,),
        most_tokens=50,
        temperature=0.5,
        idempotency_key="run:3",
    )
    answer = await whole_answer(speaker.endpoint(key="env:SOME_KEY", extra={"seed": 1}), ask)
    assert answer == ModelAnswer(
        text="fine", tool_calls=(), reason="stop", usage=Usage(input_tokens=7, output_tokens=2)
    )
    [(body, headers)] = speaker.requests
    assert body == {
        "model": "m-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 50,
        "temperature": 0.5,
        "seed": 1,
        "tools": [{"type": "function", "function": WEATHER.model_dump()}],
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "rain?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
                ],
            },
            {"role": "tool", "content": "dry", "tool_call_id": "c1"},
        ],
    }
    assert (headers["authorization"], headers["idempotency-key"]) == (f"Bearer {SECRET}", "run:3")


async def test_without_a_key_none_is_sent(speaker: Speaker) -> None:
    speaker.streams(sse_chunk("fine", "stop"))
    await whole_answer(speaker.endpoint(asks_usage=False), HELLO)
    [(body, headers)] = speaker.requests
    assert "authorization" not in headers
    assert body.keys() == {"model", "messages", "stream"}


async def test_tool_calls_are_joined_from_fragments_and_come_with_the_end(speaker: Speaker) -> None:
    speaker.streams(
        sse_chunk("let me see"),
        sse_chunk(tool_calls=[called(index=0, id="a", name="weather", arguments='{"ci')]),
        sse_chunk(tool_calls=[called(index=1, id="b", name="clock")]),
        sse_chunk(tool_calls=[called(index=0, arguments='ty": "Oslo"}')]),
        sse_chunk(None, "tool_calls"),
        DONE,
    )
    async with speaker.endpoint().answer(HELLO) as pieces:
        assert [piece async for piece in pieces] == [
            Text(text="let me see"),
            ModelToolCall(id="a", name="weather", arguments='{"city": "Oslo"}'),
            ModelToolCall(id="b", name="clock", arguments="{}"),
            ModelEnd(reason="tool_calls"),
        ]


async def test_tool_calls_without_distinct_indexes_are_distinguished_by_id(speaker: Speaker) -> None:
    for index in ({}, {"index": 0}):
        calls = [called(id=id, name="clock", arguments='{"at": "' + id + '"}', **index) for id in ("a", "b")]
        speaker.streams(
            sse_chunk(tool_calls=[calls[0]]), sse_chunk(tool_calls=[calls[1]]), sse_chunk(None, "tool_calls"), DONE
        )
        answer = await whole_answer(speaker.endpoint(), HELLO)
        assert [(call.id, call.parsed()) for call in answer.tool_calls] == [("a", {"at": "a"}), ("b", {"at": "b"})]


async def test_a_tool_call_without_an_id_gets_one(speaker: Speaker) -> None:
    speaker.streams(sse_chunk(tool_calls=[called(index=0, name="clock")], reason="tool_calls"), DONE)
    assert (await whole_answer(speaker.endpoint(), HELLO)).tool_calls == (ModelToolCall(id="call_1", name="clock"),)


async def test_text_survives_any_cut_and_any_character(speaker: Speaker) -> None:
    text = "naïve\u2028line\u0085 \U0001f30a \r end"
    whole = (sse_chunk(text, "stop") + DONE).encode()
    for size in (1, 7):
        speaker.streams(*(whole[at : at + size] for at in range(0, len(whole), size)))
        assert (await whole_answer(speaker.endpoint(), HELLO)).text == text


async def test_characters_cut_in_half_are_joined_and_what_cannot_be_stored_is_left_out(speaker: Speaker) -> None:
    halves = [
        sse_chunk(text).replace("?", escape)
        for text, escape in (("a?", "\\ud83c"), ("?b", "\\udf0a"), ("?c?", "\\ud83c"))
    ]
    speaker.streams(*halves, sse_chunk("\x00d", "stop"), DONE)
    async with speaker.endpoint().answer(HELLO) as pieces:
        texts = [piece.text async for piece in pieces if isinstance(piece, Text)]
    assert "".join(texts) == "a\U0001f30ab\ufffdc\ufffdd"


async def test_an_endpoint_that_does_not_stream_is_understood(speaker: Speaker) -> None:
    speaker.respond_with(
        200,
        '{"choices": [{"message": {"role": "assistant", "content": "all at once"}, "finish_reason": "stop"}],'
        ' "usage": {"prompt_tokens": 1, "completion_tokens": 3}}',
    )
    answer = await whole_answer(speaker.endpoint(), HELLO)
    assert (answer.text, answer.usage) == ("all at once", Usage(input_tokens=1, output_tokens=3))


async def test_a_stream_that_ends_after_its_reason_needs_no_done_marker(speaker: Speaker) -> None:
    speaker.streams(": a comment\n\n", sse_chunk("fine", "length"))
    assert (await whole_answer(speaker.endpoint(), HELLO)).reason == "length"


BROKEN = {
    "ends early": ((sse_chunk("half an"),), "broken_answer"),
    "done too early": ((sse_chunk("half an"), DONE), "broken_answer"),
    "error chunk": ((sse_chunk("half"), event(error={"message": "the engine is on fire"})), "broken_answer"),
    "invalid JSON": ((sse_chunk("half"), "data: {oops\n\n"), "bad_answer"),
    "not an object": (("data: [1]\n\n",), "bad_answer"),
    "odd choices": ((event(choices="none"),), "bad_answer"),
    "odd delta": ((event(choices=[{"delta": "text"}]),), "bad_answer"),
    "odd call": ((sse_chunk(tool_calls=["weather"]),), "bad_answer"),
    "nameless call": ((sse_chunk(tool_calls=[called(index=0, id="a")], reason="tool_calls"), DONE), "bad_answer"),
    "endless line": (("data: " + "x" * 1_200_000,), "unreachable"),
}


@pytest.mark.parametrize("case", BROKEN, ids=str)
async def test_a_broken_stream_is_an_error_that_passes(speaker: Speaker, case: str) -> None:
    parts, code = BROKEN[case]
    speaker.streams(*parts)
    error = await refused(speaker.endpoint())
    assert (error.code, error.is_passing) == (code, True)
    assert isinstance(error.outcome, Retry)


async def test_a_connection_cut_in_the_answer_is_an_error_that_passes(speaker: Speaker) -> None:
    async def say() -> Response:
        return Response("data: {}", 200, {"content-length": "5000"}, "text/event-stream")

    speaker.say = say
    error = await refused(speaker.endpoint())
    assert (error.code, error.is_passing) == ("unreachable", True)


async def test_an_endpoint_that_sends_nothing_times_out(speaker: Speaker) -> None:
    async def say() -> Response:
        async def body() -> AsyncIterator[str]:
            yield sse_chunk("wait")
            await anyio.sleep_forever()

        return StreamingResponse(body(), media_type="text/event-stream")

    speaker.say = say
    error = await refused(speaker.endpoint(silence_ms=50))
    assert (error.code, error.is_passing) == ("timeout", True)


async def test_an_unreachable_endpoint_is_a_passing_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as left:
        unused_port = left.getsockname()[1]
    error = await refused(Endpoint("m", base_url=f"http://127.0.0.1:{unused_port}/v1?api=1"))
    assert (error.code, error.is_passing) == ("unreachable", True)
    url = f"http://127.0.0.1:{unused_port}/v1/chat/completions"
    assert error.message == f"{url} closed the connection or could not be reached (ConnectError)"


REFUSALS: dict[str, tuple[int, str, dict[str, str], str, int | None, bool]] = {
    "429, seconds": (429, '{"error": {"message": "slow down"}}', {"Retry_After": "7"}, "rate_limited", 7_000, True),
    "429, ms": (429, "", {"Retry_After_Ms": "150", "Retry_After": "1"}, "rate_limited", 150, True),
    "429, no word": (429, "", {}, "rate_limited", None, True),
    "429, a year": (429, "", {"Retry_After": "31536000"}, "rate_limited", 3_600_000, True),
    "429, spent": (429, '{"error": {"code": "insufficient_quota"}}', {"Retry_After": "1"}, "quota_spent", None, False),
    "500": (500, "<html>oops</html>", {}, "unavailable", None, True),
    "503, seconds": (503, "", {"Retry_After": "2"}, "unavailable", 2_000, True),
    "401": (401, '{"error": {"message": "bad key"}}', {}, "not_authorized", None, False),
    "400": (400, '{"error": {"message": "too long", "code": "context_length_exceeded"}}', {}, "refused", None, False),
    "404, odd": (404, '"nothing here"', {}, "refused", None, False),
    "302": (302, "", {"Location": "http://127.0.0.1:1/"}, "refused", None, False),
}


@pytest.mark.parametrize("case", REFUSALS, ids=str)
async def test_a_refusal_states_whether_and_when_to_retry(speaker: Speaker, case: str) -> None:
    status, body, headers, code, after_ms, is_passing = REFUSALS[case]
    speaker.respond_with(status, body, **headers)
    error = await refused(speaker.endpoint())
    assert (error.code, error.after_ms, error.is_passing) == (code, after_ms, is_passing)
    assert error.details is not None
    assert error.details["status"] == status
    match error.outcome:
        case Retry(after_ms=payload):
            assert is_passing
            assert payload == after_ms
        case Failed():
            assert not is_passing


async def test_a_retry_date_is_relative_to_the_date_of_the_response(speaker: Speaker) -> None:
    speaker.respond_with(429, "", Retry_After="Wed, 21 Oct 2026 07:28:30 GMT", Date="Wed, 21 Oct 2026 07:28:00 GMT")
    assert (await refused(speaker.endpoint())).after_ms == 30_000


async def test_no_error_repeats_the_key(speaker: Speaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", SECRET)
    endpoint = speaker.endpoint(key="env:SOME_KEY")
    echo = f'{{"error": {{"message": "wrong key {SECRET}", "code": "bad {SECRET}"}}}}'
    speaker.respond_with(401, echo)
    errors = [await refused(endpoint)]
    speaker.streams(event(error={"message": f"you sent {SECRET}"}))
    errors.append(await refused(endpoint))
    speaker.streams(f"data: {SECRET}\n\n")
    errors.append(await refused(endpoint))
    for length in range(MOST_SHOWN - 60, MOST_SHOWN):  # wherever a long text is cut, no part of the key is left
        speaker.respond_with(500, "x" * length + SECRET + "y" * 40)
        assert "sk-" not in (await refused(endpoint)).message
    monkeypatch.setenv("SOME_KEY", f"{SECRET}\nx")
    errors.append(await refused(endpoint))
    for error in errors:
        payload = f"{error} {error.details} {error.__cause__} {error.info} {endpoint!r}"
        assert SECRET not in payload
        assert error.__context__ is None or error.__suppress_context__
    assert "***" in errors[0].message
    assert errors[0].details == {"status": 401, "endpoint_code": "bad ***"}


async def test_a_missing_key_names_its_variable_and_sends_no_request(
    speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    error = await refused(speaker.endpoint(key="env:SOME_KEY"))
    assert (error.code, error.is_passing, "SOME_KEY" in error.message) == ("no_credential", False, True)
    assert speaker.requests == []


def test_a_key_itself_is_not_taken() -> None:
    with pytest.raises(ValueError, match="env:NAME") as raised:
        Endpoint("m", base_url="https://api.example/v1", key=SECRET)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    ["api.example/v1", "ftp://api.example", "https://", "https://u:p@api.example/v1", "http://h:x/", "http://h/#f"],
)
def test_an_invalid_base_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        Endpoint("m", base_url=url)
