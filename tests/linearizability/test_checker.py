"""The checker accepts possible histories, and no others."""

import random

import pytest

from tests.linearizability.checker import Operation, explanation
from tests.linearizability.decisions import OPEN, PEOPLE, State, after

CLAIMED = ["done", "claimed", "ada"]


def op(what: str, invoked_at: int, answered_at: int | None = None, answer: list[str] | None = None) -> Operation:
    return Operation(tuple(what.split()), invoked_at, answered_at, answer)


GOOD = {
    "one after another": [op("claim ada", 1, 2, CLAIMED), op("expire", 3, 4, ["done", "expired", ""])],
    "a later one first, as they overlap": [
        op("render ada", 1, 6, ["refused", "expired", ""]),
        op("claim ada", 2, 5, ["refused", "expired", ""]),
        op("expire", 3, 4, ["done", "expired", ""]),
    ],
    "one without a response that happened": [op("claim ada", 1), op("look", 2, 3, ["refused", "claimed", "ada"])],
    "one without a response that did not": [op("claim ada", 1), op("look", 2, 3, ["refused", "open", ""])],
    "one without a response that happened late": [
        op("expire", 1),
        op("claim ada", 2, 3, CLAIMED),
        op("render ada", 4, 5, ["refused", "expired", ""]),
    ],
}
BAD = {
    "claimed by two": [op("claim ada", 1, 4, CLAIMED), op("claim bo", 2, 3, ["done", "claimed", "bo"])],
    "rendered and expired": [
        op("claim ada", 1, 2, CLAIMED),
        op("render ada", 3, 6, ["done", "rendered", "ada"]),
        op("expire", 4, 5, ["done", "expired", ""]),
    ],
    "a stale read": [op("claim ada", 1, 2, CLAIMED), op("look", 3, 4, ["refused", "open", ""])],
    "forgotten": [op("expire", 1, 2, ["done", "expired", ""]), op("claim ada", 3, 4, CLAIMED)],
    "before its request": [op("look", 1, 2, ["refused", "claimed", "ada"]), op("claim ada", 3)],
    "one without a response that took effect and was lost again": [
        op("expire", 1),
        op("look", 2, 3, ["refused", "expired", ""]),
        op("look", 4, 5, ["refused", "open", ""]),
    ],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_a_possible_history_is_explained(history: list[Operation]) -> None:
    order = explanation(history, after, OPEN)
    assert order is not None
    state: State = OPEN
    for operation in order:
        state, answer = after(state, operation.what)
        assert operation.answered_at is None or operation.answer == answer


@pytest.mark.parametrize("history", BAD.values(), ids=BAD)
def test_an_impossible_history_is_refused(history: list[Operation]) -> None:
    assert explanation(history, after, OPEN) is None


def made_up(seed: int) -> list[Operation]:
    """Return a history of a real object, with concurrent clients and some lost responses."""
    chance = random.Random(seed)
    state: State = OPEN
    history = []
    for moment in range(10, 210, 10):
        name = chance.choice(["claim", "render", "expire", "look", "look", "claim"])
        what = (name, chance.choice(PEOPLE)) if name in ("claim", "render") else (name,)
        state, answer = after(state, what)
        answered_at = moment + chance.randrange(1, 25) if chance.random() < 0.9 else None
        history.append(Operation(what, moment - chance.randrange(25), answered_at, answer))
    return history


@pytest.mark.parametrize("seed", range(20))
def test_a_real_objects_history_is_explained_and_one_with_a_wrong_response_is_not(seed: int) -> None:
    history = made_up(seed)
    assert explanation(history, after, OPEN) is not None
    last = next(number for number in reversed(range(len(history))) if history[number].answered_at)
    right = history[last]
    wrong = Operation(right.what, right.invoked_at, right.answered_at, ["refused", "claimed", "nobody"])
    assert explanation([*history[:last], wrong, *history[last + 1 :]], after, OPEN) is None


def test_a_history_with_many_lost_responses_is_judged() -> None:
    """Each may have happened or not; trying all subsets would take too long."""
    lost = [op(what, moment) for moment in range(10) for what in ("claim ada", "claim bo", "render ada", "expire")]
    assert explanation([*lost, op("look", 50, 51, ["refused", "rendered", "ada"])], after, OPEN) is not None
    assert explanation([*lost, op("look", 50, 51, ["refused", "rendered", "cy"])], after, OPEN) is None
