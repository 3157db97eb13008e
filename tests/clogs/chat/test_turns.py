"""The part of a conversation that is sent to the model."""

import pytest

from clogs.chat.records import INTERRUPTED, ChatSettings, Turn, ask_of, window
from clogs.models import Message


def turns(*sizes: int) -> list[Turn]:
    return [Turn(text=str(n) * size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "most_turns", "most_chars", "kept"),
    [
        ((), 5, 5, 0),
        ((1, 1, 1), 5, 5, 3),
        ((1, 1, 1), 2, 5, 2),
        ((1, 1, 1), 0, 5, 0),
        ((1, 1, 1), 5, 0, 0),
        ((3, 2, 3), 5, 5, 2),
        ((3, 2, 3), 5, 4, 1),
        ((1, 9, 1), 5, 5, 1),  # a turn that does not fit ends the window: the older one is not sent either
    ],
)
def test_the_window_is_the_newest_turns_that_fit(
    sizes: tuple[int, ...], most_turns: int, most_chars: int, kept: int
) -> None:
    all_turns = turns(*sizes)
    assert window(all_turns, most_turns, most_chars) == all_turns[len(all_turns) - kept :]


def test_answers_count_for_the_size_too() -> None:
    assert window([Turn(text="ab", answer="cde")], 1, 4) == []
    assert len(window([Turn(text="ab", answer="cde")], 1, 5)) == 1


def test_messages_have_their_roles_and_mark_interrupted_answers() -> None:
    earlier = [
        Turn(text="one", answer="first"),
        Turn(text="two", answer="half an ", is_interrupted=True),
        Turn(text="three", is_interrupted=True),
        Turn(text="four", error={"code": "x", "message": "y"}),
    ]
    ask = ask_of(ChatSettings(system="be brief"), earlier, "five", "key-1")
    assert [(each.role, each.content) for each in ask.messages] == [
        ("system", "be brief"),
        ("user", "one"),
        ("assistant", "first"),
        ("user", "two"),
        ("assistant", f"half an {INTERRUPTED}"),
        ("user", "three"),
        ("user", "four"),
        ("user", "five"),
    ]
    assert ask.idempotency_key == "key-1"


def test_without_a_system_prompt_there_is_none() -> None:
    assert ask_of(ChatSettings(), [], "hi", "k").messages == (Message(role="user", content="hi"),)
