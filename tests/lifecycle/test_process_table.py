"""The real process table: what `/proc` shows of processes that are alive, stopped, dead, or not to be seen."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ocean.process_table import LinuxProcesses
from ocean.state.instances import UNKNOWN_PROCESS, InstanceRecord, ProcessIdentity

HERE = LinuxProcesses()
SHOW = (
    "import sys; from dataclasses import astuple; from ocean.process_table import LinuxProcesses; "
    "print(*astuple(LinuxProcesses().here()), sep='|', flush=True); sys.stdin.read()"
)


def an_instance(process: ProcessIdentity) -> InstanceRecord:
    return InstanceRecord("i", process, 30_000, 0, 0)


def is_gone(process: ProcessIdentity, table: LinuxProcesses = HERE) -> bool:
    return table.is_gone(an_instance(process))


@contextmanager
def a_process(*before: str) -> Iterator[tuple[subprocess.Popen[str], ProcessIdentity]]:
    """A process that waits, and its identity as it sees itself."""
    child = subprocess.Popen(
        [*before, sys.executable, "-c", SHOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        try:
            boot_id, namespace, pid, start = child.stdout.readline().strip().split("|")
            yield child, ProcessIdentity(boot_id, namespace, int(pid), int(start))
        finally:
            child.kill()
            child.wait(30)


def test_a_process_knows_itself_and_is_not_gone() -> None:
    here = HERE.here()
    assert here.place is not None
    assert (here.pid, here) == (os.getpid(), LinuxProcesses().here())
    assert not is_gone(here)


def test_a_process_is_gone_once_it_is_killed_whether_it_is_a_zombie_or_reaped() -> None:
    with a_process() as (child, process):
        assert (process.place, process.pid) == (HERE.here().place, child.pid)
        assert not is_gone(process)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert " Z " in Path(f"/proc/{child.pid}/stat").read_text()
        assert is_gone(process)
        child.wait(30)
        assert is_gone(process)


def test_a_stopped_process_is_alive() -> None:
    with a_process() as (child, process):
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert not is_gone(process)


def test_a_pid_that_another_process_has_now_is_no_sign_of_life() -> None:
    here = HERE.here()
    assert here.process_start is not None
    assert is_gone(replace(here, process_start=here.process_start - 1))


def test_a_process_elsewhere_is_not_judged() -> None:
    gone = replace(HERE.here(), pid=4_194_305, process_start=1)
    assert is_gone(gone)
    for other in ("another", None):
        assert not is_gone(replace(gone, boot_id=other))
        assert not is_gone(replace(gone, pid_namespace=other))
    assert not is_gone(UNKNOWN_PROCESS)


def copy_of_proc(folder: Path, *, pid: int | None = None) -> Path:
    """The files of `/proc` that are read, without other processes, as with `hidepid`."""
    pid = pid or os.getpid()
    (folder / "sys/kernel/random").mkdir(parents=True)
    shutil.copyfile("/proc/sys/kernel/random/boot_id", folder / "sys/kernel/random/boot_id")
    (folder / str(pid) / "ns").mkdir(parents=True)
    (folder / str(pid) / "stat").write_text(Path("/proc/self/stat").read_text())
    for name in ("pid", "time"):
        (folder / str(pid) / "ns" / name).symlink_to(os.readlink(f"/proc/self/ns/{name}"))
    (folder / "self").symlink_to(str(pid))
    return folder


def test_a_process_that_proc_hides_is_not_gone(tmp_path: Path) -> None:
    table = LinuxProcesses(copy_of_proc(tmp_path))
    assert table.here() == HERE.here()
    with a_process() as (child, process):
        assert not (tmp_path / str(child.pid)).exists()
        assert not is_gone(process, table)
        child.kill()
        child.wait(30)
        assert is_gone(process, table)


def test_a_proc_of_another_namespace_or_none_tells_nothing(tmp_path: Path) -> None:
    of_another = copy_of_proc(tmp_path, pid=1)
    (of_another / str(os.getpid())).mkdir()
    shutil.copyfile("/proc/self/stat", of_another / str(os.getpid()) / "stat")
    for table in (LinuxProcesses(of_another), LinuxProcesses(tmp_path / "nothing")):
        assert table.here() == UNKNOWN_PROCESS
        assert not is_gone(replace(HERE.here(), process_start=1), table)


def test_a_name_with_spaces_and_parentheses_is_read(tmp_path: Path) -> None:
    proc = copy_of_proc(tmp_path)
    stat = proc / str(os.getpid()) / "stat"
    head, _, tail = stat.read_text().rpartition(")")
    stat.write_text(f"{head.split(' ')[0]} (a) Z (b ) 1 2){tail}")
    assert LinuxProcesses(proc).here() == HERE.here()


UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True).returncode == 0


def test_a_process_in_another_pid_namespace_is_never_judged() -> None:
    """A real namespace where the tests may make one; elsewhere only its name differs."""
    is_real = can_unshare()
    with a_process(*(UNSHARE if is_real else [])) as (child, inner):
        here = HERE.here()
        inner = inner if is_real else replace(inner, pid_namespace="pid:[1] time:[1]")
        assert inner.boot_id == here.boot_id
        assert inner.pid_namespace != here.pid_namespace
        assert not is_gone(inner)
        child.kill()
        child.wait(30)
        assert not is_gone(inner)
