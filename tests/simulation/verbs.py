"""The verbs that clients draw: the request, and the key by which a repeat is recognised."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ocean import Key, Ocean, RetryPolicy, RunInfo
from ocean.state.records import Run, RunStatus
from tests.simulation.actions import CAP, COUNTERS
from tests.simulation.history import SentRequest
from tests.simulation.instances import is_dry_run
from tests.simulation.plan import VERBS_FOR_MANY

if TYPE_CHECKING:
    from tests.simulation.world import World

Work = Callable[[Ocean], Coroutine[Any, Any, Any]]
Drawn = tuple[SentRequest, Work, bool]

CROWD = 4
REST_MS, LONGEST_REST_MS = 600, 1_500
RATE_LIMIT, RATE_PER_MS = 1, 2_000
POLICIES = (
    None,
    RetryPolicy(max_attempts=1),
    RetryPolicy(max_attempts=2, backoff_ms=100),
    RetryPolicy(jitter=0.5),
    RetryPolicy(max_attempts=None, backoff_ms=200, max_elapsed_ms=4_000),
)
KEYS = (("k1",), (Key("k2", hold="run"),), ("k1", "k3"), (Key("k3", hold="run"), "k1"))


def draw(world: "World", verb: str) -> Drawn | None:
    """Return a request, or None if there is no run yet that it could be about."""
    is_full = world.plan.is_crowded and len(world.history.runs) >= CROWD
    if verb.startswith("create"):
        return _signal(world, "signal", {}) if is_full else _create(world, verb)
    return OTHERS[verb](world) if verb in OTHERS else _on_a_run(world, verb)


def shown(answer: Any) -> str:
    return f"{answer.run_id} {answer.status}" if isinstance(answer, RunInfo) else str(answer)[:120]


def _ask(world: "World", verb: str, *, is_keyed: bool | None = None, **facts: Any) -> tuple[SentRequest, str | None]:
    token = world.history.token()
    is_keyed = world.chance.random() < 0.7 if is_keyed is None else is_keyed
    key = f"key-{token}" if is_keyed else None
    return SentRequest(verb, key, token=token, **facts), key


def _create(world: "World", verb: str) -> Drawn:
    chance, now = world.chance, world.clock.now()
    sent, key = _ask(world, verb)
    options: dict[str, Any] = {
        "session_id": chance.choice(world.history.sessions),
        "clog_id": chance.choice(("actor", "actor", "gatherer")),
        "input": {"t": sent.token},
        "priority": chance.choice((0, 5, 5, 9)),
        "retry": chance.choice(POLICIES),
    }
    match verb:
        case "create_same":
            same = chance.choice(("same-1", "same-2"))
            options = {"session_id": "s1", "clog_id": "actor", "input": {"t": same}}
            options |= chance.choice(({"run_id": same}, {"dedupe_key": same, "dedupe_ms": 900}))
            sent.run_id = options.get("run_id")
        case "create_kept":
            options = {"session_id": "s1", "clog_id": "actor", "input": {"t": "kept"}, "dedupe_key": "kept"}
        case "create_idle":
            del options["input"]
        case "create_keyed":
            options["concurrency_keys"] = chance.choice(KEYS)
        case "create_debounced":
            options |= {"session_id": "s1", "clog_id": "actor", "dedupe_key": "calm"}
            options |= {"debounce_ms": REST_MS, "debounce_max_ms": chance.choice((None, LONGEST_REST_MS))}
        case "create_rated":
            options |= {"rate_key": "rate", "rate_limit": RATE_LIMIT, "rate_per_ms": RATE_PER_MS}
        case "create_late":
            options["deadline_at"] = now + chance.randint(4_000, 12_000)
        case "create_errand":
            options |= {
                "clog_id": "errand",
                "queue": chance.choice((None, "q")),
                "concurrency_keys": chance.choice(((), ("k1",))),
            }
    is_repeatable = key is not None or verb in ("create_same", "create_kept")
    return sent, lambda ocean: ocean.create_run(**options, request_key=key), is_repeatable


def _signal(world: "World", verb: str, more: dict[str, Any]) -> Drawn | None:
    if not world.history.runs:
        return None
    run_id = world.chance.choice(world.history.runs)
    sent, key = _ask(world, verb, run_id=run_id, deliver_at=more.get("deliver_at"))
    signal_id = f"id-{sent.token}" if world.chance.random() < 0.5 else None
    options = {"signal_id": signal_id, "request_key": key, **more}
    is_repeatable = key is not None or (signal_id is not None and not more)
    return sent, lambda ocean: ocean.signal(run_id, {"t": sent.token}, **options), is_repeatable


def _signal_later(world: "World") -> Drawn | None:
    deliver_at = world.clock.now() + world.chance.randint(-500, 3_000)
    return _signal(world, "signal_later", {"deliver_at": deliver_at})


def _on_a_run(world: "World", verb: str) -> Drawn | None:
    if not world.history.runs:
        return None
    run_id = world.chance.choice(world.history.runs)
    sent, key = _ask(world, verb, run_id=run_id)
    payload = {"t": sent.token}
    works: dict[str, Work] = {
        "call": lambda ocean: ocean.call_clog(run_id=run_id, method="note", payload=payload, request_key=key),
        "remind": lambda ocean: ocean.call_clog(run_id=run_id, method="remind", payload=payload, request_key=key),
        "settle": lambda ocean: ocean.settle(run_id, timeout_ms=500),
        "result": lambda ocean: ocean.result(run_id, timeout_ms=500),
        "cancel": lambda ocean: ocean.cancel_run(run_id, request_key=key),
        "pause": lambda ocean: ocean.pause_run(run_id, request_key=key),
        "resume": lambda ocean: ocean.resume_run(run_id, request_key=key),
        "retry": lambda ocean: ocean.retry_run(run_id, request_key=key),
        "delete": lambda ocean: ocean.delete_run(run_id, request_key=key),
        "dry_run": lambda ocean: _rehearse(ocean, run_id),
        "explain": lambda ocean: ocean.explain(run_id),
        "advance_run": lambda ocean: ocean.advance(run_id=run_id, budget_ms=500),
    }
    return sent, works[verb], key is not None


async def _rehearse(ocean: Ocean, run_id: str) -> Any:
    is_dry_run.set(True)
    return await ocean.advance(run_id=run_id, dry_run=True)


def _call_clog(world: "World") -> Drawn:
    sent, key = _ask(world, "call_clog")
    session_id = world.chance.choice(world.history.sessions)
    options: dict[str, Any] = {"clog_id": "actor", "session_id": session_id, "method": "add"}
    work: Work = lambda ocean: ocean.call_clog(**options, payload={"t": sent.token}, request_key=key)  # noqa: E731
    return sent, work, key is not None


def _take(world: "World") -> Drawn:
    counter = world.chance.choice(COUNTERS)
    sent, key = _ask(world, "take", run_id=counter)
    return sent, lambda ocean: ocean.take(counter, limit=CAP, request_key=key), key is not None


def _set_limit(world: "World") -> Drawn:
    sent, key = _ask(world, "set_limit")
    name, limit = world.chance.choice(("k1", "k2", "k3")), world.chance.randint(0, 3)
    return sent, lambda ocean: ocean.set_limit(name, limit, request_key=key), key is not None


def _clog(verb: str) -> Callable[["World"], Drawn]:
    def drawn(world: "World") -> Drawn:
        sent, key = _ask(world, verb)
        clog_id = world.chance.choice(("actor", "gatherer", "errand"))
        return sent, lambda ocean: getattr(ocean, verb)(clog_id, request_key=key), key is not None

    return drawn


def _delete_session(world: "World") -> Drawn | None:
    if world.chance.random() < 0.8:
        return None
    sent, key = _ask(world, "delete_session")
    return sent, lambda ocean: ocean.delete_session("s2", request_key=key), key is not None


def _many(verb: str) -> Callable[["World"], Drawn]:
    def drawn(world: "World") -> Drawn:
        chance = world.chance
        where = chance.choice([{"session_id": "s1"}, {"session_id": "s2"}, {"clog_id": "gatherer"}])
        how: dict[str, Any] = {"batch": chance.choice((1, 2, 100)), "per_second": chance.choice((None, None, 4))}
        how["most"] = chance.choice((2, 2, None)) if verb == "delete_runs" else chance.choice((None, None, 2))
        runs = [run for run in world.watcher.rows.values() if all(getattr(run, name) == where[name] for name in where)]
        meant = [run for run in runs if _is_meant(verb, run)]
        sent, _ = _ask(world, verb, is_keyed=False, meant=tuple(run.run_id for run in meant))
        if verb == "signal_runs":
            how |= {"input": {"t": sent.token}, "signal_id": f"id-{sent.token}"}
        return sent, lambda ocean: getattr(ocean, verb)(**where, **how), True

    return drawn


def _is_meant(verb: str, run: Run) -> bool:
    match verb:
        case "delete_runs":
            return True
        case "retry_runs":
            return run.status is RunStatus.FAILED
        case _:
            return not run.is_ended


def cancel(world: "World", run_id: str) -> Drawn:
    sent, key = _ask(world, "cancel", run_id=run_id)
    return sent, lambda ocean: ocean.cancel_run(run_id, request_key=key), key is not None


def retry_end(world: "World", run_id: str) -> Drawn:
    sent, key = _ask(world, "retry_end", run_id=run_id)
    return sent, lambda ocean: ocean.retry_end(run_id, request_key=key), key is not None


def _sweep(world: "World") -> Drawn:
    sent, _ = _ask(world, "sweep", is_keyed=False)
    ages = {
        "events_older_than_ms": world.chance.choice((None, 1_000, 5_000)),
        "runs_older_than_ms": world.chance.choice((None, 1_000, 5_000)),
    }
    return sent, lambda ocean: ocean.sweep(**ages, batch=world.chance.choice((2, 100))), True


OTHERS: dict[str, Callable[["World"], Drawn | None]] = {
    "signal": lambda world: _signal(world, "signal", {}),
    "signal_later": _signal_later,
    "signal_if_idle": lambda world: _signal(world, "signal_if_idle", {"if_idle": True}),
    "signal_unknown": lambda world: (_ask(world, "signal_unknown")[0], lambda ocean: ocean.signal("nobody"), True),
    "call_clog": _call_clog,
    "take": _take,
    "set_limit": _set_limit,
    "pause_clog": _clog("pause_clog"),
    "resume_clog": _clog("resume_clog"),
    "delete_session": _delete_session,
    "sweep": _sweep,
    **{verb: _many(verb) for verb in VERBS_FOR_MANY},
}
