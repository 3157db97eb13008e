"""A linearizability checker: searches for a sequential order that explains every response.

An operation takes effect at one moment between its invocation and its response. One without a response may have taken
effect at any time since its invocation, or never. The algorithm is Wing and Gong's search with Lowe's cache: each pair
of completed operations and resulting state is tried once.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. Times are any numbers that order the history; without a response, `answer` is ignored."""

    what: tuple[str, ...]
    invoked_at: int
    answered_at: int | None = None
    answer: Any = None


Step = Callable[[State, tuple[str, ...]], tuple[State, Any]]
"""Returns the next state and the response of an operation."""


def explanation(history: Sequence[Operation], step: Step[State], start: State) -> list[Operation] | None:
    """Return an order in which every response is right, or None if there is none."""
    tried: set[tuple[int, State]] = set()
    responded = sum(1 << number for number, done in enumerate(history) if done.answered_at is not None)
    # Each branch: the operations done, the state they led to, and their order.
    branches: list[tuple[int, State, tuple[int, ...]]] = [(0, start, ())]
    while branches:
        done, state, order = branches.pop()
        if done & responded == responded:
            return [history[number] for number in order]
        if (done, state) in tried:
            continue
        tried.add((done, state))
        for number in _possible_next(history, done):
            following, answer = step(state, history[number].what)
            # An operation without a response that changes nothing can be left out.
            is_lost = history[number].answered_at is None
            if following != state if is_lost else history[number].answer == answer:
                branches.append((done | 1 << number, following, (*order, number)))
    return None


def _possible_next(history: Sequence[Operation], done: int) -> list[int]:
    """Return the remaining operations that were invoked before the first response among them."""
    left = [number for number in range(len(history)) if not done & 1 << number]
    first_response = min(
        (responded_at for number in left if (responded_at := history[number].answered_at) is not None), default=None
    )
    return [number for number in left if first_response is None or history[number].invoked_at < first_response]
