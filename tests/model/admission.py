"""The model of concurrency keys and capped counters, next to the model of the runs."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from ocean.state.records import Key

KEYS = ("a", "b", "c")
CAP = 2
"""The limit of each counter that ticks and outside callers take from."""


@dataclass
class Slots:
    """Which run has a slot of which key. Only a claim takes a slot, and only within the current limit."""

    limits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 1))
    keys: dict[str, tuple[Key, ...]] = field(default_factory=dict)
    holders: dict[str, set[str]] = field(default_factory=lambda: {key: set() for key in KEYS})

    def is_free_for(self, run_id: str) -> bool:
        return all(
            run_id in self.holders[key.name] or len(self.holders[key.name]) < self.limits[key.name]
            for key in self.keys[run_id]
        )

    def claim(self, run_id: str) -> None:
        """Take slots in the order of the claims: each claim sees the slots taken by those before it."""
        assert self.is_free_for(run_id), f"{run_id} works above a limit: {self.holders} of {self.limits}"
        for key in self.keys[run_id]:
            self.holders[key.name].add(run_id)

    def free(self, run_id: str, *, is_ended: bool) -> None:
        """Free the slots at the end of a tick, or of the run."""
        for key in self.keys[run_id]:
            if is_ended or key.hold == "tick":
                self.holders[key.name].discard(run_id)

    def in_use(self, key: str) -> int:
        return len(self.holders[key])


def keys_of(names: Iterable[str], holds: Iterable[Literal["tick", "run"]]) -> tuple[Key, ...]:
    return tuple(Key(name, hold) for name, hold in zip(names, holds, strict=False))
