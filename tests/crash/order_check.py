"""The checker of the order storm: each order against the requests that were acknowledged and the ledger."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from ocean import Event, Ocean, RunInfo, RunStatus

Entry = dict[str, Any]
"""A row of the payment service's ledger."""


@dataclass(frozen=True)
class Plan:
    """What happens to an order: `requests` after it was made, and the pauses around them."""

    run_id: str
    kind: str
    requests: tuple[str, ...]
    pauses: tuple[float, ...]
    amount: int


@dataclass
class Report:
    """The statuses of the responses to the customer: 409 means that the order had ended before."""

    plan: Plan
    decision_status: int | None = None
    cancel_status: int | None = None

    @property
    def is_cancelled(self) -> bool:
        return self.cancel_status == 200


@dataclass(frozen=True)
class Summary:
    """`repeats` are requests that the payment service recognised; `restarts` are calls that a kill has ended."""

    seed: int
    kills: int
    orders: int
    shipped: int
    cancelled: int
    charges: int
    refunds: int
    voids: int
    repeats: int
    restarts: int


async def check(ocean: Ocean, reports: list[Report], ledger: list[Entry], seed: int, kills: int) -> Summary:
    """Collect everything that is wrong, so that one look shows whether the failures are of one kind."""
    by_key: dict[str, list[Entry]] = defaultdict(list)
    for entry in ledger:
        by_key[entry["key"]].append(entry)
    log = await _log(ocean)
    wrong = [f"{key} is no key of an order" for key in set(by_key) - {_key(report) for report in reports}]
    ended: list[RunInfo] = []
    for report in reports:
        run_id = report.plan.run_id
        run = await ocean.get_run(run_id)
        if run is None:
            wrong.append(f"{run_id}: acknowledged, and lost")
            continue
        ended.append(run)
        kinds = [entry["kind"] for entry in by_key[_key(report)]]
        mine = [event for event in log if event.run_id == run_id]
        found = [*_wrong_end(report, run), *_wrong_money(run, kinds), *_wrong_events(run, mine)]
        found += await _wrong_inputs(ocean, report, mine)
        wrong += [f"{run_id} ({report}): {each}; ledger {kinds}; {run.status} {run.error}" for each in found]
    assert not wrong, f"seed {seed}:\n" + "\n".join(wrong)
    entries, types = Counter(entry["kind"] for entry in ledger), Counter(event.type for event in log)
    return Summary(
        seed=seed,
        kills=kills,
        orders=len(reports),
        shipped=sum(run.status is RunStatus.DONE for run in ended),
        cancelled=sum(report.is_cancelled for report in reports),
        charges=entries["charge"],
        refunds=entries["refund"],
        voids=entries["void"],
        repeats=sum(entry["repeats"] for entry in ledger),
        restarts=types["tick.restarted"],
    )


def _key(report: Report) -> str:
    return f"{report.plan.run_id}/charge"


def _wrong_end(report: Report, run: RunInfo) -> list[str]:
    """An order ends as the acknowledged requests say, whatever was killed in between."""
    requests = report.plan.requests
    code = (run.error or {}).get("code")
    if report.is_cancelled:
        return [] if code == "cancelled" else ["cancelled, and not ended so"]
    shipped: tuple[RunStatus, Any] = (RunStatus.DONE, {"state": "shipped", "approved_by": None})
    approved = "approve" in requests and run.output is not None and run.output.get("state") == "shipped"
    match report.plan.kind:
        case "approved" | "approved and cancelled":
            return [] if run.status is RunStatus.DONE and approved else ["approved, and not shipped"]
        case "rejected":
            return [] if code == "rejected" else ["rejected, and not refunded for that"]
        case "left alone, small":
            return [] if (run.status, run.output) == shipped else ["small, and not shipped"]
        case "left alone, large":
            return [] if code == "not_approved" else ["large, and not refunded in the end"]
        case _:
            return ["its cancellation was refused, although it had not been decided"]


def _wrong_money(run: RunInfo, kinds: list[str]) -> list[str]:
    """A shipped order is paid once. Any other is refunded exactly once, if it was charged."""
    if run.status is RunStatus.DONE:
        return [] if kinds == ["charge"] else ["shipped, and not paid exactly once"]
    return [] if kinds in ([], ["void"], ["charge", "refund"]) else ["not shipped, and not refunded exactly once"]


def _wrong_events(run: RunInfo, mine: list[Event]) -> list[str]:
    types = Counter(event.type for event in mine)
    consumed = Counter(number for event in mine if event.type == "tick.committed" for number in event.payload["inputs"])
    found = []
    if [event.run_seq for event in mine] != list(range(1, len(mine) + 1)):
        found.append("its log has a gap")
    if types["order.charged"] > 1 or types["order.shipped"] != (run.status is RunStatus.DONE):
        found.append(f"events {dict(types)}")
    if any(times > 1 for times in consumed.values()):
        found.append("an input was consumed twice")
    return found


async def _wrong_inputs(ocean: Ocean, report: Report, mine: list[Event]) -> list[str]:
    """An acknowledged decision is there once; the approval of a shipped order was delivered, once."""
    inputs = [each for each in await ocean.list_inputs(report.plan.run_id) if each.signal_id is not None]
    accepted = 1 if report.decision_status == 202 else 0
    if len(inputs) != accepted:
        return [f"{accepted} decisions acknowledged, {len(inputs)} stored"]
    is_shipped = any(event.type == "order.shipped" for event in mine)
    if is_shipped and any(each.consumed_tick is None for each in inputs):
        return ["shipped without its approval"]
    return []


async def _log(ocean: Ocean) -> list[Event]:
    log: list[Event] = []
    while page := await ocean.read_events(after=log[-1].seq if log else 0, limit=1_000):
        log += page
    return log
