"""The plan of one seed: each seed has some of the faults, some of the verbs and some of the actions of handlers.

Seeds in which everything can happen find less: frequent events hide rare ones (swarm testing).
"""

from dataclasses import dataclass
from random import Random

FAULTS = (
    "crash",
    "crash_before_commit",
    "crash_after_commit",
    "busy",
    "error_before_commit",
    "commit_then_busy",
    "commit_then_error",
    "broken_group",
    "slow_commit",
    "busy_renewal",
    "pause",
    "block",
    "skew",
    "jump",
    "cancel_request",
    "cancel_poke",
    "hasty_poke",
    "duplicate",
    "lost_answer",
    "late_request",
    "handler_raises",
    "handler_times_out",
    "handler_answers_nonsense",
    "handler_retries",
)

RATES = {
    "cancel_poke": (0.05, 0.3),
    "hasty_poke": (0.3, 0.9),
    "block": (0.1, 0.4),
    "pause": (0.05, 0.3),
    "handler_raises": (0.1, 0.5),
    "handler_retries": (0.1, 0.4),
    "broken_group": (0.5,),
    "busy_renewal": (0.3, 0.7),
    "duplicate": (0.1, 0.5),
}
"""Rates of faults that have few occasions."""

VERBS = (
    "create",
    "create_same",
    "create_kept",
    "create_idle",
    "create_keyed",
    "create_debounced",
    "create_rated",
    "create_late",
    "create_errand",
    "signal",
    "signal_later",
    "signal_if_idle",
    "signal_unknown",
    "call",
    "remind",
    "call_clog",
    "settle",
    "result",
    "take",
    "cancel",
    "pause",
    "resume",
    "pause_clog",
    "resume_clog",
    "set_limit",
    "retry",
    "delete",
    "delete_session",
    "sweep",
    "dry_run",
    "explain",
    "advance_run",
)

FAULTS_OF_ENDS = ("end_raises", "slow_step", "cancelled_at_work")
"""Drawn separately, as `VERBS_FOR_MANY`."""

VERBS_FOR_MANY = ("cancel_runs", "signal_runs", "retry_runs", "delete_runs")
"""Drawn separately, so that older seeds keep their other verbs."""

DEEDS = (
    "add",
    "bump",
    "look",
    "take",
    "step",
    "run_step",
    "stream",
    "timer",
    "cancel_timer",
    "child",
    "signal",
    "sleep",
    "call",
    "attribute",
    "release",
    "tick_row",
    "forget",
    "kin",
    "send_later",
    "insist",
)

ENDS = {"ok": (4, 8), "wait": (2, 6), "continue": (2, 6), "done": (1, 2), "failed": (1,), "abort": (1,)}

SELDOM = ("pause_clog", "pause", "delete", "delete_session", "cancel")
"""Verbs that leave little for the others to do."""

ALWAYS = ("create", "signal", "create_errand")


@dataclass(frozen=True)
class Plan:
    """`rates` are probabilities per occasion. A fault that is not in it does not happen in this seed."""

    rates: dict[str, float]
    verbs: dict[str, int]
    deeds: dict[str, float]
    ends: dict[str, int]
    instances: int
    clients: int
    requests: int
    lock_ms: int
    tick_ms: int
    pokes_ms: int
    has_ticker: bool
    """The first instance has a ticker. In the phase without faults, only that ticker pokes."""
    is_crowded: bool
    """Few runs, with many requests for each."""
    retries_ends: bool
    end_attempts: int
    grace_ms: int


def drawn(chance: Random, further: Random, of_ends: Random) -> Plan:
    share = chance.choice((0.0, 0.15, 0.3, 0.5))
    rates = {name: chance.choice(RATES.get(name, (0.02, 0.06, 0.15))) for name in FAULTS if chance.random() < share}
    verbs = {
        name: (1 if name in SELDOM else chance.choice((2, 4, 8)))
        for name in VERBS
        if name in ALWAYS or chance.random() < 0.5
    }
    verbs |= {name: 1 for name in VERBS_FOR_MANY if further.random() < 0.2}
    if of_ends.random() < 0.5:
        rates |= {name: of_ends.choice((0.2, 0.6)) for name in FAULTS_OF_ENDS if of_ends.random() < 0.7}
    deeds = {name: chance.choice((0.2, 0.5, 0.9)) for name in DEEDS if chance.random() < 0.4}
    if "look" in deeds:
        # A handler that reads a row must find something there.
        deeds["bump"] = 0.5
    ends = {name: chance.choice(ENDS[name]) for name in ENDS if name in ("ok", "done") or chance.random() < 0.7}
    return Plan(
        rates=rates,
        verbs=verbs,
        deeds=deeds,
        ends=ends,
        instances=chance.randint(2, 3),
        clients=chance.randint(2, 4),
        requests=chance.randint(6, 20),
        lock_ms=chance.choice((300, 1_000)),
        tick_ms=chance.choice((1_500, 5_000)),
        pokes_ms=chance.choice((150, 600, 2_000)),
        has_ticker=chance.random() < 0.3,
        is_crowded=chance.random() < 0.5,
        retries_ends=of_ends.random() < 0.5,
        end_attempts=of_ends.choice((1, 2, 4)),
        grace_ms=of_ends.choice((0, 500, 2_500)),
    )
