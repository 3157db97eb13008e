"""Retries: whether there is another attempt, and when. Pure."""

from dataclasses import dataclass
from typing import Any

from ocean.state.errors import InvalidValue
from ocean.state.ids import even_roll
from ocean.state.values import shown


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`max_attempts=None` retries for ever. `delays_ms` replaces the doubling; its last entry repeats."""

    max_attempts: int | None = 3
    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000
    delays_ms: tuple[int, ...] | None = None
    max_elapsed_ms: int | None = None
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.delays_ms is not None and not isinstance(self.delays_ms, list | tuple):
            raise InvalidValue(f"retry.delays_ms must be a list of milliseconds, got {shown(self.delays_ms)}")
        if self.delays_ms is not None:
            object.__setattr__(self, "delays_ms", tuple(self.delays_ms))
        attempts = self.max_attempts
        if attempts is not None and (type(attempts) is not int or not 1 <= attempts <= 1_000_000):
            raise InvalidValue(
                f"retry.max_attempts must be an integer from 1 to 1000000 or None, got {shown(attempts)}"
            )
        if self.delays_ms == ():
            raise InvalidValue("retry.delays_ms must have at least one delay")
        times = [self.backoff_ms, self.backoff_max_ms, self.max_elapsed_ms or 0, *(self.delays_ms or ())]
        if any(isinstance(ms, bool) or not isinstance(ms, int) or not 0 <= ms <= 2**40 for ms in times):
            raise InvalidValue(f"retry delays must be non-negative integers of milliseconds, got {times}")
        if not isinstance(self.jitter, int | float) or not 0 <= self.jitter <= 10:
            raise InvalidValue(f"retry.jitter must be a number from 0 to 10, got {shown(self.jitter)}")

    def as_json(self) -> dict[str, Any]:
        """Return the policy as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def delay_for(policy: RetryPolicy, attempt: int, roll: float) -> int:
    """Return the delay after the `attempt`-th failure (1, 2, …); `roll` in [0, 1) selects the jitter."""
    if policy.delays_ms is not None:
        base = policy.delays_ms[min(attempt, len(policy.delays_ms)) - 1]
    else:
        doublings = min(attempt - 1, 40)
        base = min(policy.backoff_ms * 2**doublings, policy.backoff_max_ms)
    return base + int(base * policy.jitter * roll)


def is_spent(attempt: int, max_attempts: int | None) -> bool:
    """Return whether no attempt is left after this many failures."""
    return max_attempts is not None and attempt >= max_attempts


def next_attempt_at(
    policy: RetryPolicy,
    max_attempts: int | None,
    attempt: int,
    began_at: int,
    now: int,
    seed: tuple[str | int, ...],
    after_ms: int | None = None,
) -> int | None:
    """Return when to try again after the `attempt`-th failure, or None if that was the last attempt.

    `began_at` is when the first attempt began, for `max_elapsed_ms`; `seed` selects the jitter. The rule of a run's
    ticks and of a flow's steps alike; `max_attempts` is apart, because a run has its own.
    """
    is_late = policy.max_elapsed_ms is not None and now - began_at >= policy.max_elapsed_ms
    if is_late or is_spent(attempt, max_attempts):
        return None
    return now + (delay_for(policy, attempt, even_roll(*seed, attempt)) if after_ms is None else after_ms)
