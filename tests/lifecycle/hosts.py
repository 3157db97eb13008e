"""Hosts with process tables that a test fills."""

from dataclasses import dataclass, field

from ocean.state.instances import UNKNOWN_PROCESS, InstanceRecord, ProcessIdentity


@dataclass
class Host:
    """A machine: the processes that run in its pid namespaces, as start times."""

    boot_id: str = "boot-1"
    running: dict[tuple[str | None, int | None], int] = field(default_factory=dict)
    asked: int = 0
    started: int = 0

    def spawn(self, pid: int, namespace: str = "pid:[1]") -> "Spawned":
        self.started += 1
        self.running[namespace, pid] = self.started
        return Spawned(self, ProcessIdentity(self.boot_id, namespace, pid, self.started))

    def kill(self, process: "Spawned") -> None:
        del self.running[process.identity.pid_namespace, process.identity.pid]


@dataclass
class Spawned:
    """The process table as one process of a host sees it: whatever it asks, it finds in its own namespace."""

    host: Host
    identity: ProcessIdentity

    def here(self) -> ProcessIdentity:
        return self.identity

    def is_gone(self, record: InstanceRecord) -> bool:
        self.host.asked += 1
        place = self.identity.pid_namespace, record.process.pid
        return self.host.running.get(place) != record.process.process_start


class Unknown:
    """The process table of a system that tells nothing."""

    def here(self) -> ProcessIdentity:
        return UNKNOWN_PROCESS

    def is_gone(self, record: InstanceRecord) -> bool:
        raise AssertionError("nothing is comparable here")
