"""A conversation: streamed replies, interruptions, retries, the history, and the end."""

from typing import Any

import pytest

from clogs.chat import chat
from clogs.chat.records import INTERRUPTED, MOST_ANSWER, MOST_TEXT
from clogs.models import Ask, ModelError, ModelReply, by_script
from ocean import InvalidValue, RetryPolicy, RunFailed
from ocean.testing import world
from tests.clogs.chat.kit import Mind, Talk, talking
from tests.errors import bare

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000


async def status(talk: Talk) -> str:
    info = await talk.w.ocean.get_run(talk.run_id)
    assert info is not None
    return info.status


async def test_a_message_gets_a_streamed_answer_and_is_stored_as_a_turn() -> None:
    async with talking() as talk:
        await talk.say("good morning", signal_id="m-1")
        await talk.w.drain()
        heard, *tokens, turn = await talk.events("chat.heard", "chat.token", "chat.turn")
        assert (heard.payload, heard.call) == ({"text": "good morning", "signal_id": "m-1"}, 1)
        assert "".join(token.payload["text"] for token in tokens) == "You wrote: good morning"
        assert {token.tick for token in tokens} == {turn.tick}
        assert turn.payload == {
            "text": "good morning",
            "answer": "You wrote: good morning",
            "is_interrupted": False,
            "reason": "stop",
            "usage": {"input_tokens": 2, "output_tokens": 4},
            "error": None,
            "model": "offline",
            "signal_id": "m-1",
        }
        assert await talk.turns() == [turn.payload]
        assert await status(talk) == "waiting"


async def test_tokens_are_visible_while_the_model_still_streams() -> None:
    async with talking() as talk:
        await talk.say("tea and cake")
        async with talk.during_answer(at_word=3):
            async for event in talk.w.ocean.follow(talk.run_id):
                if event.type == "chat.token" and "wrote:" in event.payload["text"]:
                    break
            assert "".join(await talk.streamed_texts(tick=2)) == "You wrote: "
            assert await talk.turns() == []
            talk.mind.go_on.set()
        assert (await talk.turns())[0]["answer"] == "You wrote: tea and cake"


async def test_the_model_gets_the_system_prompt_and_the_window_of_the_history() -> None:
    async with talking(Mind(lambda ask: ModelReply("ok")), system="be brief", window_turns=2) as talk:
        for text in ("one", "two", "three", "four"):
            await talk.turn_for(text)
        assert talk.mind.sent_messages() == [
            ("system", "be brief"),
            ("user", "two"),
            ("assistant", "ok"),
            ("user", "three"),
            ("assistant", "ok"),
            ("user", "four"),
        ]
        assert [turn["text"] for turn in await talk.turns()] == ["one", "two", "three", "four"]


async def test_the_window_is_bounded_by_size_too() -> None:
    async with talking(Mind(lambda ask: ModelReply("ok")), window_chars=6) as talk:
        for text in ("one", "four", "five"):
            await talk.turn_for(text)
        assert talk.mind.sent_messages() == [("user", "four"), ("assistant", "ok"), ("user", "five")]


async def test_a_new_message_interrupts_the_answer_which_stays_in_the_history() -> None:
    async with talking() as talk:
        await talk.say("a long story please")
        async with talk.during_answer(at_word=3):
            await talk.say("no, a short one")
        first, second = await talk.turns()
        assert (first["answer"], first["is_interrupted"], first["reason"]) == ("You wrote: ", True, None)
        assert "".join(await talk.streamed_texts(tick=2)) == "You wrote: "
        assert (second["text"], second["is_interrupted"]) == ("no, a short one", False)
        assert talk.mind.sent_messages() == [
            ("user", "a long story please"),
            ("assistant", f"You wrote: {INTERRUPTED}"),
            ("user", "no, a short one"),
        ]


async def test_a_model_that_has_sent_nothing_is_interrupted_too() -> None:
    async with talking() as talk:
        await talk.say("think")
        async with talk.during_answer(at_word=1):
            await talk.say("never mind")
        first, second = await talk.turns()
        assert (first["answer"], first["is_interrupted"]) == ("", True)
        assert second["answer"].startswith("You wrote: never mind")


async def test_of_messages_that_wait_together_only_the_last_gets_an_answer_and_all_are_in_the_history() -> None:
    async with talking() as talk:
        for text in ("one", "two", "three"):
            await talk.say(text)
        await talk.w.drain()
        assert [(turn["text"], turn["is_interrupted"]) for turn in await talk.turns()] == [
            ("one", True),
            ("two", True),
            ("three", False),
        ]
        assert len(talk.mind.asks) == 1
        assert talk.mind.sent_messages() == [("user", "one"), ("user", "two"), ("user", "three")]


async def test_stop_ends_the_answer_and_is_not_a_message() -> None:
    async with talking() as talk:
        await talk.say("a long story please")
        async with talk.during_answer(at_word=2):
            await talk.w.ocean.signal(talk.run_id, {"stop": True})
        [turn] = await talk.turns()
        assert (turn["answer"], turn["is_interrupted"]) == ("You ", True)
        assert await status(talk) == "waiting"


async def test_a_message_after_the_end_of_an_answer_interrupts_nothing() -> None:
    async with talking() as talk:
        await talk.turn_for("hello")
        await talk.turn_for("again")
        assert [turn["is_interrupted"] for turn in await talk.turns()] == [False, False]


def failing(times: int, **error: Any) -> Mind:
    """A model whose answer fails after one word, a given number of times."""
    left = iter([ModelReply("Well, ", error=ModelError("unavailable", "the model is down", **error))] * times)
    return Mind(lambda ask: next(left, ModelReply("Well, here I am.")))


async def test_a_failing_model_is_reported_and_called_again_after_its_delay() -> None:
    async with talking(failing(1, is_passing=True, after_ms=7_000)) as talk:
        await talk.say("anybody there?")
        await talk.w.drain()
        [error] = await talk.events("chat.error")
        assert error.payload == {"code": "unavailable", "message": "the model is down", "after_ms": 7_000}
        assert await talk.turns() == []
        await talk.w.wait(6_999)
        assert len(talk.mind.asks) == 1
        await talk.w.wait(1)
        [turn] = await talk.turns()
        assert (turn["answer"], turn["error"]) == ("Well, here I am.", None)
        assert "".join(await talk.streamed_texts(tick=2, call=1)) == "Well, "
        assert "".join(await talk.streamed_texts(tick=2, call=2)) == "Well, here I am."
        assert [event.call for event in await talk.events("chat.heard")] == [1, 2]


async def test_a_message_fails_after_all_attempts_and_the_conversation_continues() -> None:
    async with talking(failing(3, is_passing=True)) as talk:
        await talk.say("anybody there?")
        await talk.w.wait(10_000)
        assert len(await talk.events("chat.error")) == 2
        [turn] = await talk.turns()
        assert turn["error"] == {"code": "unavailable", "message": "the model is down", "details": None}
        assert (turn["answer"], turn["is_interrupted"]) == ("", False)
        assert (await talk.turn_for("and now?"))["answer"] == "Well, here I am."
        assert talk.mind.sent_messages() == [("user", "anybody there?"), ("user", "and now?")]


async def test_a_permanent_refusal_is_not_retried() -> None:
    async with talking(failing(1)) as talk:
        turn = await talk.turn_for("anybody there?")
        assert (turn["error"]["code"], len(talk.mind.asks)) == ("unavailable", 1)
        assert await talk.events("chat.error") == []
        assert await status(talk) == "waiting"


async def test_the_number_of_attempts_is_the_policy_of_the_run() -> None:
    mind = failing(9, is_passing=True)
    async with world([mind.chat()]) as w:
        policy = RetryPolicy(max_attempts=5, backoff_ms=100)
        run = await w.ocean.create_run(session_id="s", clog_id="chat", input={"text": "hi"}, retry=policy)
        await w.wait(10_000)
        [turn] = await w.ocean.call_clog(run_id=run.run_id, method="turns")
        assert (len(mind.asks), turn["error"]["code"]) == (5, "unavailable")


async def test_a_new_message_during_the_backoff_replaces_the_failed_one() -> None:
    async with talking(failing(1, is_passing=True)) as talk:
        await talk.say("anybody there?")
        await talk.w.drain()
        await talk.say("hello?")
        await talk.w.wait(1_000)
        assert [(turn["text"], turn["is_interrupted"]) for turn in await talk.turns()] == [
            ("anybody there?", True),
            ("hello?", False),
        ]
        assert len(talk.mind.asks) == 2


async def test_a_defect_in_a_model_fails_the_attempt_with_its_own_error() -> None:
    def replying(ask: Ask) -> ModelReply:
        raise KeyError("oops")

    async with talking(Mind(replying)) as talk:
        await talk.say("hi there")
        await talk.w.drain()
        info = await talk.w.ocean.get_run(talk.run_id)
        assert info is not None
        assert bare(info.error) == {"code": "exception", "message": "KeyError: 'oops'", "details": None}


async def test_a_conversation_may_begin_with_a_message_and_names_its_model() -> None:
    async with talking(model="other", text="who are you?") as talk:
        [turn] = await talk.turns()
        assert (turn["text"], turn["answer"], turn["model"]) == ("who are you?", "I am the other one.", "other")
        [opened] = await talk.events("chat.opened")
        assert opened.payload == {"model": "other"}


async def test_a_conversation_without_settings_gets_the_first_model() -> None:
    mind = Mind()
    async with world([mind.chat()]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="chat")
        talk = Talk(w, mind, run.run_id)
        assert (await talk.turn_for("hi"))["model"] == "offline"
        assert len(await talk.events("chat.opened")) == 1


@pytest.mark.parametrize(
    ("input", "code", "details"),
    [
        ({"model": "othr"}, "unknown_model", "there is no model 'othr'; did you mean 'other'?"),
        ({"sytem": "x"}, "bad_settings", "sytem: Extra inputs are not permitted"),
        ({"window_turns": 51}, "bad_settings", "window_turns: Input should be less than or equal to 50"),
        ("hello", "bad_settings", "the input: Input should be a valid dictionary or instance of ChatSettings"),
    ],
)
async def test_invalid_settings_fail_the_run_and_name_the_field(input: Any, code: str, details: str) -> None:
    async with world([Mind().chat()]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="chat", input=input)
        await w.drain()
        with pytest.raises(RunFailed) as raised:
            await w.ocean.result(run.run_id)
        assert (raised.value.error["code"], raised.value.error["message"]) == (code, details)


@pytest.mark.parametrize("body", ["text", {"txt": "hi"}, {"text": 7}, None, {"text": "x" * (MOST_TEXT + 1)}])
async def test_a_signal_that_is_not_a_message_is_refused_with_an_event_and_the_chat_continues(
    body: Any,
) -> None:
    async with talking() as talk:
        await talk.w.ocean.signal(talk.run_id, body, signal_id="odd")
        await talk.w.drain()
        [refused] = await talk.events("chat.refused")
        assert (refused.payload["code"], refused.payload["signal_id"]) == ("bad_message", "odd")
        assert (await talk.turn_for("hi there"))["text"] == "hi there"


async def test_an_empty_message_is_ignored() -> None:
    async with talking() as talk:
        await talk.say("  ")
        await talk.w.drain()
        assert (await talk.turns(), talk.mind.asks) == ([], [])


async def test_a_conversation_ends_after_its_idle_time() -> None:
    async with talking(idle_ms=DAY_MS) as talk:
        await talk.w.wait(DAY_MS - 1)
        await talk.turn_for("still here")
        await talk.w.wait(DAY_MS - 1)
        assert await status(talk) == "waiting"
        await talk.w.wait(1)
        assert await talk.w.ocean.result(talk.run_id) == {"reason": "idle"}


async def test_a_message_that_waits_when_the_idle_time_is_over_gets_an_answer() -> None:
    async with talking(idle_ms=DAY_MS) as talk:
        talk.w.clock.jump(DAY_MS + 5)  # no process poked: the timer is due, and then a message arrives
        assert (await talk.turn_for("am I late?"))["answer"] == "You wrote: am I late?"
        assert await status(talk) == "waiting"


async def test_without_a_limit_a_conversation_never_ends_by_itself() -> None:
    async with talking(idle_ms=None) as talk:
        await talk.turn_for("hi there")
        info = await talk.w.ocean.get_run(talk.run_id)
        assert info is not None
        assert (info.status, info.due_at) == ("idle", None)


async def test_an_answer_without_end_is_cut() -> None:
    async with talking(Mind(lambda ask: ModelReply("word " * 50)), answer_chars=12) as talk:
        turn = await talk.turn_for("go on")
        assert (turn["answer"], turn["reason"], turn["is_interrupted"]) == ("word word wo", "length", False)


async def test_the_longest_turn_of_the_widest_characters_can_be_kept() -> None:
    async with talking(Mind(lambda ask: ModelReply("\x01" * MOST_ANSWER))) as talk:
        await talk.turn_for("\x01" * (MOST_TEXT - 1) + "x")
        assert len((await talk.turns())[0]["answer"]) == MOST_ANSWER


async def test_a_dry_run_calls_no_model() -> None:
    async with talking() as talk:
        await talk.say("hi there")
        shown = (await talk.w.ocean.advance(dry_run=True, run_id=talk.run_id)).dry_run
        assert shown is not None
        assert shown.stopped_at is not None
        assert (shown.stopped_at.kind, shown.stopped_at.name, talk.mind.asks) == ("step", "answer", [])


@pytest.mark.parametrize("limit", [0, 51, "2"])
async def test_turns_takes_a_limit_within_its_bounds(limit: Any) -> None:
    async with talking() as talk:
        for text in ("one", "two", "three"):
            await talk.turn_for(text)
        newest = await talk.w.ocean.call_clog(run_id=talk.run_id, method="turns", payload={"limit": 2})
        assert [turn["text"] for turn in newest] == ["two", "three"]
        with pytest.raises(InvalidValue, match="limit must be between 1 and 50"):
            await talk.w.ocean.call_clog(run_id=talk.run_id, method="turns", payload={"limit": limit})


async def test_a_model_is_called_with_the_idempotency_key_of_the_step() -> None:
    async with talking(failing(1, is_passing=True)) as talk:
        await talk.say("anybody there?")
        await talk.w.wait(1_000)
        first, second = [ask.idempotency_key for ask in talk.mind.asks]
        assert first == second
        assert first is not None


async def test_the_chat_that_ships_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OCEAN_MODEL", "OCEAN_MODEL_URL"):
        monkeypatch.delenv(name, raising=False)
    async with world([chat]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="chat", input={"text": "hello"})
        await w.drain()
        [turn] = await w.ocean.call_clog(run_id=run.run_id, method="turns")
        assert turn["answer"].startswith("Hello!")


async def test_a_script_of_the_offline_model_depends_on_the_conversation() -> None:
    replies: Any = by_script(ModelReply("one"), ModelReply("two"))
    requests: list[Ask] = []

    def replying(ask: Ask) -> ModelReply:
        requests.append(ask)
        reply: ModelReply = replies(ask)
        return reply

    async with talking(Mind(replying)) as talk:
        assert [(await talk.turn_for(text))["answer"] for text in ("a", "b", "c")] == ["one", "two", "two"]
