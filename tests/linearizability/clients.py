"""Clients that compete for decisions, and record their requests and responses."""

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ocean import Conflict, Ocean, StoreBusy, StoreFailed
from tests.linearizability.checker import Operation, explanation
from tests.linearizability.decisions import OPEN, PEOPLE, after


@dataclass
class History:
    """The operations of each decision, ordered by time."""

    clock: "itertools.count[int]" = field(default_factory=itertools.count)
    of: dict[str, list[Operation]] = field(default_factory=dict)

    def record_request(self, run_id: str, what: tuple[str, ...]) -> int:
        """Record a request and return its place in the decision's history, without a response yet."""
        mine = self.of.setdefault(run_id, [])
        mine.append(Operation(what, next(self.clock)))
        return len(mine) - 1

    def record_response(self, run_id: str, place: int, answer: list[str]) -> None:
        mine = self.of[run_id]
        mine[place] = replace(mine[place], answered_at=next(self.clock), answer=answer)

    def record_undone(self, run_id: str, place: int) -> None:
        """Record that the request certainly had no effect."""
        mine = self.of[run_id]
        mine[place] = replace(mine[place], what=("nothing",))

    async def make(self, ocean: Ocean, run_id: str, what: tuple[str, ...]) -> list[str] | None:
        """Call the method and record the response. None means that there was none."""
        place = self.record_request(run_id, what)
        try:
            answer: list[str] = await ocean.call_clog(
                run_id=run_id, method=what[0], payload=what[1] if len(what) > 1 else None
            )
        except Conflict:
            self.record_undone(run_id, place)
            return None
        except (StoreBusy, StoreFailed):
            return None
        self.record_response(run_id, place, answer)
        return answer


def drawn(chance: random.Random, who: str) -> tuple[str, ...]:
    name = chance.choice(["claim", "claim", "render", "render", "expire", "look"])
    return (name, who) if name in ("claim", "render") else (name,)


def random_person(chance: random.Random) -> str:
    return chance.choice(PEOPLE)


def unexplained(histories: dict[str, list[Operation]]) -> Iterable[str]:
    """Return the decisions whose history no order explains. Each is a separate object."""
    return [run_id for run_id, history in histories.items() if explanation(history, after, OPEN) is None]


async def check_ends(ocean: Ocean, run_ids: Iterable[str]) -> int:
    """Check that each decision was made or has expired, never both, never twice. Returns how many have ended."""
    ended = 0
    for run_id in run_ids:
        ended += ends_in(run_id, [event.type for event in await ocean.read_events(run_id, limit=1_000)])
    return ended


def ends_in(run_id: str, types: Sequence[str]) -> int:
    """Check one decision's log: at most one end, at most one claim. Returns whether it has ended."""
    ends = [type for type in types if type in ("rendered", "expired")]
    assert len(ends) <= 1, f"{run_id}: {ends}"
    assert types.count("claimed") <= 1, f"{run_id} was claimed {types.count('claimed')} times"
    return len(ends)
