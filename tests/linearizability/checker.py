"""Could all this have happened one after another? A search for an order that explains every answer.

An operation takes effect at one moment between its invocation and its answer. One that was never answered may have
taken effect at any time since, or never. Wing and Gong's search, with the memory that Lowe gave it: a set of operations
done, and the state that they led to, is tried once.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Operation:
    """Times are any numbers that order the history; the result of an operation without a response is ignored."""

    what: tuple[str, ...]
    invoked_at: int
    answered_at: int | None = None
    answer: Any = None


Step = Callable[[State, tuple[str, ...]], tuple[State, Any]]
"""What an operation does to a state, and answers."""


def explanation(history: Sequence[Operation], step: Step[State], start: State) -> list[Operation] | None:
    """Return an order in which every response is right, or None if there is none."""
    tried: set[tuple[int, State]] = set()
    answered = sum(1 << number for number, done in enumerate(history) if done.answered_at is not None)
    # Of each branch: what is done, the state it led to, and the order so far.
    branches: list[tuple[int, State, tuple[int, ...]]] = [(0, start, ())]
    while branches:
        done, state, order = branches.pop()
        if done & answered == answered:
            return [history[number] for number in order]
        if (done, state) in tried:
            continue
        tried.add((done, state))
        for number in _possible_next(history, done):
            following, answer = step(state, history[number].what)
            # Whatever was not answered and would change nothing may as well not have happened.
            is_lost = history[number].answered_at is None
            if following != state if is_lost else history[number].answer == answer:
                branches.append((done | 1 << number, following, (*order, number)))
    return None


def _possible_next(history: Sequence[Operation], done: int) -> list[int]:
    """Return those that were invoked before any other remaining one responded."""
    left = [number for number in range(len(history)) if not done & 1 << number]
    first_answer = min(
        (answered for number in left if (answered := history[number].answered_at) is not None), default=None
    )
    return [number for number in left if first_answer is None or history[number].invoked_at < first_answer]
