"""Checks at the end of a simulation: how the kernel has ended runs, and how calls in progress were stopped."""

from tests.simulation.event_log import FinalState

ENDINGS = ("cancel", "deadline", "exhausted")


def second_ends(final: FinalState) -> set[int]:
    """Return the cursors of the ends of runs that had ended before, and whose last tick was retried."""
    found: set[int] = set()
    has_ended: dict[str, bool] = {}
    for event in final.of("run.created", "run.done", "run.failed"):
        if event["type"] == "run.created":
            has_ended[event["run_id"]] = False
        elif has_ended.get(event["run_id"]):
            found.add(event["seq"])
        else:
            has_ended[event["run_id"]] = True
    return found


def last_ticks_are_called_to_the_end(final: FinalState) -> None:
    """A run ends without its last tick only if that has used up its attempts."""
    ending: dict[str, int] = {}
    for event in final.of("run.created", "run.ending", "run.end_incomplete", "tick.committed", "run.failed"):
        run_id, payload = event["run_id"], event["payload"]
        match event["type"]:
            case "run.ending":
                ending[run_id] = final.world.plan.end_attempts
            case "run.end_incomplete":
                spent = payload["attempts"]
                assert spent == ending.pop(run_id), f"last tick: given up after {spent} attempts: {event}"
            case "tick.committed":
                if payload["reason"] in ENDINGS:
                    assert run_id in ending, f"last tick: it commits without an end: {event}"
                    del ending[run_id]
            case "run.created":
                ending.pop(run_id, None)
            case _ if payload["error"]["code"] != "deleted":
                assert run_id not in ending, f"last tick: {run_id} ended without it: {event}"


def stopped_calls_are_given_back(final: FinalState) -> None:
    """Without other faults, the process of a run that is ending gives it back: its last tick need not wait."""
    if final.world.plan.rates.keys() - {"end_raises", "cancelled_at_work"} or final.world.has_threads:
        return
    stopping: set[str] = set()
    for event in final.of("run.created", "run.ending", "tick.given_back", "tick.committed", "run.retrying"):
        run_id = event["run_id"]
        if event["type"] == "run.ending" and event["payload"]["stop_by"] is not None:
            stopping.add(run_id)
        elif event["type"] in ("run.created", "tick.given_back"):
            stopping.discard(run_id)
        else:
            assert run_id not in stopping, f"stopped call: it was not given back before the last tick: {event}"


CHECKS = (last_ticks_are_called_to_the_end, stopped_calls_are_given_back)
