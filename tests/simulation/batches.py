"""Many seeds: what failed, how fast they ran, and which events never occurred, which is a failure, too."""

import gc
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from tests.simulation.backends import BackendName
from tests.simulation.plan import DEEDS, ENDS, FAULTS, FAULTS_OF_ENDS, VERBS, VERBS_FOR_MANY
from tests.simulation.world import Mode, Result, simulate

COLLECT_EVERY = 10

REASONS = ("created", "signal", "timer", "wake", "continue", "child", "cancel", "deadline", "exhausted")
OUTCOMES = ("ok", "wait", "continue", "done", "failed", "retry", "lock_lost", "given_back")
EVENTS = (
    "run.parked",
    "run.debounced",
    "run.ending",
    "run.end_incomplete",
    "run.retrying",
    "run.waiting",
    "run.deleted",
    "tick.restarted",
    "tick.given_back",
    "tick.failed",
    "timer.cancelled",
    "signal.undelivered",
)
EXPECTED = (
    *(f"fault {name}" for name in (*FAULTS, *FAULTS_OF_ENDS)),
    *(f"verb {name}" for name in VERBS if name != "signal_unknown"),
    *(f"verb {name}" for name in ("claim_work", "renew_work", "release_work", "complete_work")),
    *(f"verb {name}" for name in (*VERBS_FOR_MANY, "retry_end")),
    *(f"deed {name}" for name in DEEDS),
    *(f"end {name}" for name in ENDS),
    *(f"reason {name}" for name in REASONS),
    *(f"outcome {name}" for name in OUTCOMES),
    *(f"event {name}" for name in EVENTS),
    *(f"again {name}" for name in ("conflict", "counter", "crash", "retry", "give_back")),
    *(f"decision done {name}" for name in ("claim", "render", "expire")),
    *(f"decision refused {name}" for name in ("claim", "render", "expire", "look")),
    "decision unanswered",
    *(f"ending {where}" for where in ("at work", "at rest")),
    *(f"crash {how}" for how in ("alone", "beside others")),
    "suspect called",
    "handler in a thread",
    *(f"feed {name}" for name in ("ended", "resumed", "dropped")),
    *(f"delay {name}" for name in ("rate", "debounce")),
    "fault dead worker",
    "fault dropped reader",
    "refused run_not_found",
    "refused run_ended",
    "refused run_busy",
    "refused lease_lost",
)


@dataclass
class Batch:
    seeds: int = 0
    seconds: float = 0.0
    steps: int = 0
    coverage: Counter[str] = field(default_factory=Counter)
    failures: list[Result] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        return [name for name in EXPECTED if not self.coverage[name]]

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.steps += result.steps
        self.coverage += result.coverage
        if result.failure is not None:
            self.failures.append(result)


def mode_of(seed: int, mode: str) -> Mode:
    """Return the mode of a seed; with "both", they alternate."""
    if mode == "both":
        return "liveness" if seed % 2 else "safety"
    return "liveness" if mode == "liveness" else "safety"


def backend_of(seed: int, backend: str) -> BackendName:
    """Return the database of a seed; with "both", each tenth seed has PostgreSQL."""
    if backend == "both":
        return "postgres" if seed % 10 == 9 else "sqlite"
    return "postgres" if backend == "postgres" else "sqlite"


def run_batch(seeds: Sequence[int], mode: str = "both", backend: str = "sqlite", jobs: int = 1) -> Batch:
    batch, began = Batch(), time.perf_counter()
    if jobs == 1:
        for result in (_one(seed, mode, backend) for seed in seeds):
            batch.add(result)
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            for result in pool.map(partial(_one, mode=mode, backend=backend), seeds, chunksize=10):
                batch.add(result)
    batch.seconds = time.perf_counter() - began
    return batch


def _one(seed: int, mode: str, backend: str) -> Result:
    result = simulate(seed, mode_of(seed, mode), backend_of(seed, backend))
    result.trace.clear()
    if seed % COLLECT_EVERY == 0:
        gc.collect()
    return result


def show(batch: Batch) -> str:
    rate = batch.seeds / batch.seconds
    lines = [f"{batch.seeds} seeds, {len(batch.failures)} failed, {rate:.1f} a second, {batch.steps} steps"]
    table = [f"{name} {batch.coverage[name]}" for name in EXPECTED]
    width = max(map(len, table)) + 2
    lines += ["".join(each.ljust(width) for each in table[at : at + 4]) for at in range(0, len(table), 4)]
    lines += [f"never occurred: {name}" for name in batch.missing] if batch.seeds else []
    for result in batch.failures:
        assert result.failure is not None
        lines.append(f"seed {result.seed} failed, {result.failure.check}: {result.failure.message[:300]}")
        lines.append(
            f"  python -m tests.simulation --seed {result.seed} --mode {result.mode} --backend {result.backend} --trace"
        )
    return "\n".join(lines)
