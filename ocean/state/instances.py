"""The instances that share a database: where each runs, and when it was last seen. Pure.

Two processes can be compared only in one pid namespace of one boot of one machine. Everywhere else, also if a fact is
missing, nothing is known about a process, and only the time of its locks decides.
"""

from dataclasses import dataclass, replace

from ocean.state.eligibility import Hold
from ocean.state.records import Run


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """A pid namespace of one boot of one machine: inside it a pid and a start time name one process."""

    boot_id: str
    pid_namespace: str


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process. Facts that the system does not show are None: then the process is equal to no other."""

    boot_id: str | None = None
    pid_namespace: str | None = None
    pid: int | None = None
    process_start: int | None = None

    @property
    def place(self) -> ProcessPlace | None:
        """Where the process can be looked for; None if it is not known well enough to be found."""
        if self.boot_id is None or self.pid_namespace is None or self.pid is None or self.process_start is None:
            return None
        return ProcessPlace(self.boot_id, self.pid_namespace)


UNKNOWN_PROCESS = ProcessIdentity()


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """A registered instance. `seen_at` is when it registered or last renewed its locks."""

    instance_id: str
    process: ProcessIdentity
    longest_lock_ms: int
    started_at: int
    seen_at: int


def last_seen(holder: InstanceRecord, lock_expires_at: int) -> int:
    """Return a time at which the holder of this lock was certainly alive.

    The lock was taken or renewed at most `longest_lock_ms` before it expires.
    """
    return max(holder.seen_at, lock_expires_at - holder.longest_lock_ms)


def with_holder(
    found: tuple[Hold, ...], run: Run, holder: InstanceRecord | None, here: ProcessIdentity, now: int
) -> tuple[Hold, ...]:
    """Return the holds with what is known of the instance that has the run's lock."""
    if holder is None or run.lock_expires_at is None or run.locked_by != holder.instance_id:
        return found
    seen = time_span(now - last_seen(holder, run.lock_expires_at))
    ending = "" if run.stop_by is None else f"the run is ending ({run.ending}), and a step may finish first; "
    message = f"{ending}held by {holder.instance_id}, last seen {seen} ago, for tick {run.tick}"
    if here.place is not None and holder.process.place == here.place:
        process = "this process" if holder.process == here else f"process {holder.process.pid} on this host"
        message += f" ({process}); if the process is killed, the next poke on this host takes the run"
    else:
        left = time_span(run.lock_expires_at - now)
        message += f" (on another host or in another container); if it is dead, its lock expires in {left}"
    return tuple(replace(hold, message=message) if hold.code == "locked" else hold for hold in found)


_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def time_span(ms: int) -> str:
    """Return a duration in its largest unit, rounded down."""
    for unit, size in _UNITS:
        if ms >= size:
            return f"{ms // size} {unit}"
    return f"{max(ms, 0)} ms"
