"""The external worker that is killed: it reports every point of a lease to a callback."""

from collections.abc import Callable

from ocean import Clog, Done, Lease, LeaseLost, Ocean

At = Callable[[str, Lease], None]

LEASED = "leased"
RENEWED = "renewed"
COMPLETED = "completed"
LOST = "lost"
POINTS = (LEASED, RENEWED, COMPLETED)


def porter() -> Clog:
    return Clog("porter", external=True)


async def carry(ocean: Ocean, lease: Lease, at: At) -> None:
    """Add the input's cargo to the row and end the run, once; a lost lease is left to its new holder."""
    try:
        at(LEASED, lease)
        await ocean.renew_work(lease.lease_id, events=[("carrying", {"by": lease.worker_id})])
        at(RENEWED, lease)
        row = {"cargo": (lease.row or {"cargo": 0})["cargo"] + lease.input["cargo"]}
        await ocean.complete_work(lease.lease_id, Done(row), row=row, events=[("carried", row)])
        at(COMPLETED, lease)
    except LeaseLost:
        at(LOST, lease)
