"""Commands on a terminal: colours, live tables, confirmations."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.cli.kit import PATIENCE_S, ROOT, SHOP, Shell

pytestmark = pytest.mark.xdist_group("processes")


class Terminal:
    """A command on a pseudo-terminal: what it displays, and what is typed."""

    def __init__(self, ocean: Shell, *args: str) -> None:
        self._mine, theirs = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ocean", *args],
            cwd=ocean.folder,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OCEAN_CLOGS": SHOP, "TERM": "xterm-256color", "COLUMNS": "120"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def until(self, text: str) -> str:
        while text not in self.seen:
            assert select.select([self._mine], [], [], PATIENCE_S)[0], self.seen
            self.seen += os.read(self._mine, 65_536).decode()
        return self.seen

    def type(self, text: str) -> None:
        os.write(self._mine, text.encode())

    def ended(self) -> int:
        # The rest of its output must be read, or the process blocks.
        while select.select([self._mine], [], [], PATIENCE_S)[0]:
            try:
                text = os.read(self._mine, 65_536)
            except OSError:  # The other side is closed.
                break
            if not text:
                break
            self.seen += text.decode()
        return self.process.wait(PATIENCE_S)

    def ended_by_ctrl_c(self) -> int:
        """Send Ctrl-C until the process ends: one sent just before a read is noticed only after it."""
        while self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_S / 4)
        return self.ended()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._mine)


@contextmanager
def terminal(ocean: Shell, *args: str) -> Iterator[Terminal]:
    one = Terminal(ocean, *args)
    try:
        yield one
    finally:
        one.close()


def test_a_table_has_colours_on_a_terminal_only(ocean: Shell) -> None:
    run_id = ocean.create("done", "--run-id", "r1")
    assert "\x1b[" not in ocean("ps").out
    with terminal(ocean, "ps") as t:
        assert t.ended() == 0
        assert "\x1b[33mpending\x1b[0m" in t.seen
        assert run_id in t.seen


def test_a_watched_table_follows_other_processes_until_ctrl_c(ocean: Shell) -> None:
    ocean.create("done", "--run-id", "r1")
    with terminal(ocean, "ps", "--watch") as t:
        t.until("r1")
        ocean.create("done", "--run-id", "r2")
        t.until("r2")
        t.process.send_signal(signal.SIGINT)
        assert t.ended() == 130
        assert "Traceback" not in t.seen


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, 0), ("n\n", 1, 2), ("\n", 1, 2)])
def test_acting_on_many_runs_asks_for_confirmation_with_their_count(
    ocean: Shell, answer: str, code: int, left: int
) -> None:
    for _ in range(2):
        ocean.create("wait")
    with terminal(ocean, "cancel", "--clog", "shop") as t:
        t.until("Cancel 2 runs? [y/N]")
        t.type(answer)
        assert t.ended() == code
        assert ("cancelled 2 runs" in t.seen) is (code == 0)
    assert len(ocean.json("ps", "--status", "pending")["runs"]) == left


def test_acting_on_many_runs_shows_its_progress_on_a_terminal(ocean: Shell) -> None:
    for _ in range(2):
        ocean.create("wait")
    with terminal(ocean, "cancel", "--clog", "shop", "--yes") as t:
        assert t.ended() == 0
        assert "2/2" in t.seen
    assert ocean("cancel", "--clog", "shop", "--yes").err == ""


def test_ctrl_c_at_a_confirmation_means_no(ocean: Shell) -> None:
    ocean.create("wait")
    with terminal(ocean, "delete", "--everything") as t:
        t.until("Delete 1 run? [y/N]")
        assert t.ended_by_ctrl_c() == 130
        assert "Traceback" not in t.seen
    assert len(ocean.json("ps")["runs"]) == 1


def test_deleting_a_session_asks_for_confirmation(ocean: Shell) -> None:
    ocean.create("wait", "--session", "s")
    with terminal(ocean, "delete-session", "s") as t:
        t.until("Delete session s with 1 run? [y/N]")
        t.type("y\n")
        assert t.ended() == 0
    assert ocean.json("ps")["runs"] == []


def test_a_sweep_shows_its_progress_on_a_terminal(ocean: Shell) -> None:
    for _ in range(2):
        ocean.create("wait")
    with terminal(ocean, "sweep", "--events", "0ms") as t:
        assert t.ended() == 0
        assert t.seen.count("removed 2 events, 0 runs") > 1
    assert ocean("sweep", "--events", "0ms").err == ""
