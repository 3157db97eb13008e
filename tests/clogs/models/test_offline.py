"""The model without a network: the same answer to the same conversation, by rules or by a script."""

import re
import subprocess
import sys

import anyio.lowlevel
import pytest

from clogs.models import (
    Ask,
    EnvironmentModels,
    Message,
    ModelEnd,
    ModelError,
    ModelReply,
    Models,
    ModelToolCall,
    OfflineModel,
    Rule,
    Text,
    Usage,
    by_rules,
    by_script,
    whole_answer,
)
from clogs.models.endpoint import Endpoint
from clogs.models.offline import words

# Models use no store: one back end is enough.
pytestmark = [pytest.mark.anyio, pytest.mark.sqlite]


def ask_of(*texts: str) -> Ask:
    """A conversation: the user's words, the model's, and so on."""
    return Ask(messages=tuple(Message(role=("user", "assistant")[n % 2], content=text) for n, text in enumerate(texts)))


async def test_it_streams_word_by_word_and_its_words_are_the_text() -> None:
    async with OfflineModel().answer(ask_of("two  words\n")) as pieces:
        got = [piece async for piece in pieces]
    assert got == [Text(text="You "), Text(text="wrote: "), Text(text="two  "), Text(text="words\n"), got[-1]]
    assert got[-1] == ModelEnd(reason="stop", usage=Usage(input_tokens=2, output_tokens=4))


@pytest.mark.parametrize("text", ["", " ", "a", " a  b\n\nc ", "\n"])
def test_words_joined_are_the_text(text: str) -> None:
    assert "".join(words(text)) == text


async def test_equal_conversations_get_equal_answers_and_earlier_messages_count() -> None:
    model = OfflineModel()
    first = await whole_answer(model, ask_of("tea", "ok", "cake"))
    assert first == await whole_answer(model, ask_of("tea", "ok", "cake"))
    assert first.text == "You wrote: cake I remember 1 earlier message from you."


async def test_rules_reply_by_the_last_message_and_may_call_tools() -> None:
    model = OfflineModel(
        by_rules(
            Rule(
                r"weather in (\w+)",
                ModelReply("Let me look.", calls=[("weather", {"city": "{1}", "days": [1, "{0}"]})]),
            ),
            Rule("rain", ModelReply("It is wet.")),
        )
    )
    answer = await whole_answer(model, ask_of("The WEATHER in Oslo?"))
    assert (answer.text, answer.reason) == ("Let me look.", "tool_calls")
    assert answer.tool_calls[0].parsed() == {"city": "Oslo", "days": [1, "WEATHER in Oslo"]}
    assert (await whole_answer(model, ask_of("rain"))).text == "It is wet."
    assert (await whole_answer(model, ask_of("snow"))).text == "You wrote: snow"
    tool = Ask(messages=(*ask_of("?").messages, answer.message, Message(role="tool", content="sun", tool_call_id="x")))
    assert (await whole_answer(model, tool)).text == "The tool returned: sun"


async def test_a_script_replies_by_the_number_of_earlier_answers() -> None:
    model = OfflineModel(by_script(ModelReply("one", calls=[("clock", {})]), ModelReply("two")))
    first = await whole_answer(model, ask_of("a"))
    assert first.tool_calls == (ModelToolCall(id="call_1_1", name="clock", arguments="{}"),)
    assert [(await whole_answer(model, ask_of("a", "one", "b"))).text for _ in range(2)] == ["two", "two"]
    assert (await whole_answer(model, ask_of("a", "one", "b", "two", "c"))).text == "two"
    with pytest.raises(ValueError, match="at least one"):
        by_script()


async def test_a_reply_may_break_after_its_words() -> None:
    error = ModelError("unavailable", "down", is_passing=True)
    pieces_received = []

    async def hear() -> None:
        async with OfflineModel(by_script(ModelReply("half an", error=error))).answer(ask_of("?")) as pieces:
            async for piece in pieces:
                pieces_received.append(piece)

    with pytest.raises(ModelError, match="down"):
        await hear()
    assert pieces_received == [Text(text="half "), Text(text="an")]


async def test_a_pause_is_taken_before_every_word() -> None:
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1
        await anyio.lowlevel.checkpoint()

    async with OfflineModel(by_script(ModelReply("one two")), pause=pause).answer(ask_of("?")) as pieces:
        await anext(aiter(pieces))
        assert pauses == 1


@pytest.mark.parametrize(("arguments", "details"), [("{oops", "must be JSON"), ("[1]", "must be a JSON object")])
def test_arguments_that_are_not_an_object_are_an_error_for_the_model(arguments: str, details: str) -> None:
    with pytest.raises(ModelError, match=details) as raised:
        ModelToolCall(id="a", name="weather", arguments=arguments).parsed()
    assert raised.value.code == "bad_arguments"


def test_models_are_found_by_name_and_a_wrong_name_suggests_the_nearest() -> None:
    models = Models([OfflineModel(), OfflineModel(name="other")])
    assert (models.default, models.find("other").name) == ("offline", "other")
    for name, hint in (("ofline", "did you mean 'offline'?"), ("x", "available: offline, other")):
        with pytest.raises(ModelError, match=re.escape(hint)) as raised:
            models.find(name)
        assert not raised.value.is_passing
    with pytest.raises(ValueError, match="at least one"):
        Models([])


def test_the_environment_names_an_endpoint_for_every_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OCEAN_MODEL", "OCEAN_MODEL_URL", "OCEAN_MODEL_KEY"):
        monkeypatch.delenv(name, raising=False)
    models = EnvironmentModels()
    assert isinstance(models.find(models.default), OfflineModel)
    with pytest.raises(ModelError, match="set OCEAN_MODEL_URL"):
        models.find("big")
    monkeypatch.setenv("OCEAN_MODEL", "big")
    monkeypatch.setenv("OCEAN_MODEL_URL", "http://127.0.0.1:9/v1")
    found = models.find(models.default)
    assert isinstance(found, Endpoint)
    assert models.find("big") is found
    assert repr(found) == "Endpoint('big', at 'http://127.0.0.1:9/v1/chat/completions')"
    monkeypatch.setenv("OCEAN_MODEL_URL", "nonsense")
    with pytest.raises(ModelError, match="OCEAN_MODEL_URL: base_url must be"):
        models.find("big")


WITHOUT_A_CLIENT = """
import os, sys
sys.modules["httpx2"] = None
os.environ["OCEAN_MODEL_URL"] = "http://127.0.0.1:9/v1"
from clogs.chat import chat
from clogs.models import EnvironmentModels, ModelError
try:
    EnvironmentModels().find("big")
except ModelError as error:
    print(error.code, error.message)
"""


def test_without_the_extra_everything_except_endpoints_is_available() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_A_CLIENT], capture_output=True, text=True, timeout=60)
    assert (done.stderr, done.stdout) == (
        "",
        "no_client endpoints need the extra: pip install 'ocean-runtime[models]'\n",
    )
