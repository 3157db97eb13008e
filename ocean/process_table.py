"""The processes of this machine, as Linux shows them in `/proc`. Elsewhere nothing is known of any process.

A pid is no identity: it is used again, and two containers use the same ones. The boot id distinguishes machines and
boots, the namespaces containers, and the start time two processes that had the same pid. The time namespace counts too,
because it shifts the start times that a process sees.
"""

import os
from pathlib import Path

from ocean.state.instances import UNKNOWN_PROCESS, InstanceRecord, ProcessIdentity

PROC = Path("/proc")
NAMESPACES = ("pid", "time")
DEAD = ("Z", "X", "x")


class LinuxProcesses:
    """The process table of this machine."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc

    def here(self) -> ProcessIdentity:
        """Return the identity of this process, or `UNKNOWN_PROCESS` if the system does not show all of it."""
        try:
            pid = os.getpid()
            if os.readlink(self._proc / "self") != str(pid):
                # A `/proc` of another pid namespace: its numbers are those of other processes.
                return UNKNOWN_PROCESS
            boot_id = (self._proc / "sys/kernel/random/boot_id").read_text().strip()
            namespaces = " ".join(self._namespace(name) for name in NAMESPACES)
            return ProcessIdentity(boot_id or None, namespaces, pid, self._stat(pid).start)
        except (OSError, ValueError, IndexError):
            return UNKNOWN_PROCESS

    def is_gone(self, record: InstanceRecord) -> bool:
        """Return whether the instance's process has certainly ended. False if that cannot be known from here."""
        here, process = self.here(), record.process
        if process.place is None or process.place != here.place or process.pid is None:
            return False
        try:
            # Asked first, because `/proc` may hide the processes of other users.
            os.kill(process.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # It exists, but belongs to another user.
        try:
            stat = self._stat(process.pid)
        except (OSError, ValueError, IndexError):
            return False
        return stat.start != process.process_start or (stat.state in DEAD and stat.threads <= 1)

    def _namespace(self, name: str) -> str:
        try:
            return os.readlink(self._proc / "self/ns" / name)
        except FileNotFoundError:
            if name == "time":  # Linux before 5.6 has none.
                return ""
            raise

    def _stat(self, pid: int) -> "_Stat":
        # The second field, the name of the program, is in parentheses and may contain any character.
        fields = (self._proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return _Stat(fields[0], int(fields[17]), int(fields[19]))


class _Stat:
    """The state, the number of threads and the start time of a process."""

    def __init__(self, state: str, threads: int, start: int) -> None:
        self.state = state
        self.threads = threads
        self.start = start
