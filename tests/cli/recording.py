"""`ocean tail` over a restart of its server, as three terminals show it.

`python -m tests.cli.recording` records it again into the document that the tests compare.
"""

import os
import re
import select
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.cli.kit import PATIENCE_S, ROOT

DOCUMENT = ROOT / "docs" / "tail-over-a-restart.md"
RECORDING = re.compile(r"(?<=^```text\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)


class Recorder:
    """What was typed and shown, line by line, with the name of the terminal in front."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.port = "0"
        self.ends = ExitStack()

    def typed(self, terminal: str, command: str) -> None:
        self.lines.append(f"{terminal:<6} $ {command}".replace(self.port, "8080"))

    def shown(self, terminal: str, text: str) -> None:
        self.lines.append(f"{terminal:<6}   {text.rstrip()}".replace(self.port, "8080"))

    def start(self, *words: str) -> "subprocess.Popen[str]":
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OCEAN_")}
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "ocean", *words],
            cwd=self.folder,
            env=kept | {"PYTHONPATH": str(ROOT), "OCEAN_CLOGS": "mailer:mailer"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=0,
        )
        self.ends.callback(process.communicate)
        self.ends.callback(process.kill)
        return process

    def hear(self, terminal: str, process: "subprocess.Popen[str]", count: int = 1) -> str:
        assert process.stdout is not None
        for _ in range(count):
            assert select.select([process.stdout], [], [], PATIENCE_S)[0], "\n".join(self.lines)
            line = _line(process.stdout.fileno())
            self.shown(terminal, line)
        return line

    def hand(self, command: str, *words: str) -> None:
        self.typed("hand", command)
        text, _ = self.start(*words).communicate(timeout=PATIENCE_S)
        for line in text.splitlines():
            self.shown("hand", line)


def _line(fd: int) -> str:
    """One line and no more, so that `select` knows whether there is another."""
    line = b""
    while not line.endswith(b"\n"):
        letter = os.read(fd, 1)
        assert letter, f"it ended after {line!r}"
        line += letter
    return line.decode()


def recorded(folder: Path) -> str:
    recorder = Recorder(folder)
    with recorder.ends:
        recorder.start("new", "clog", "mailer").communicate(timeout=PATIENCE_S)
        _act(recorder)
    return "".join(f"{line}\n" for line in recorder.lines)


def _act(recorder: Recorder) -> None:
    start, hear, typed, hand = recorder.start, recorder.hear, recorder.typed, recorder.hand
    server = start("serve", "--port", "0")
    text = hear("server", server)
    recorder.port = text.split("127.0.0.1:")[1].split(",")[0]
    recorder.lines.clear()
    typed("server", f"ocean serve --port {recorder.port}")
    recorder.shown("server", text)

    hand("""ocean create mailer --run-id r1 --input '{"name": "Ada"}'""", *_create())
    url = f"http://127.0.0.1:{recorder.port}"
    typed("tail", f"ocean tail r1 --url {url} --type greeted --type run.done")
    tail = start("tail", "r1", "--url", url, "--type", "greeted", "--type", "run.done")
    hear("tail", tail)

    typed("hand", "kill -KILL $SERVER")
    server.kill()
    server.wait(PATIENCE_S)
    hear("tail", tail)
    hand("""ocean signal r1 --input '{"name": "Grace"}'""", "signal", "r1", "--input", '{"name": "Grace"}')

    typed("server", f"ocean serve --port {recorder.port}")
    again = start("serve", "--port", recorder.port)
    hear("server", again)
    hear("tail", tail, 2)
    hand("""ocean signal r1 --input '{"name": "Barbara"}'""", "signal", "r1", "--input", '{"name": "Barbara"}')
    hear("tail", tail, 2)
    rest, _ = tail.communicate(timeout=PATIENCE_S)
    assert rest == "", rest
    typed("tail", "echo $?")
    recorder.shown("tail", str(tail.returncode))


def _create() -> tuple[str, ...]:
    return ("create", "mailer", "--run-id", "r1", "--input", '{"name": "Ada"}')


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        text = recorded(Path(made))
    DOCUMENT.write_text(RECORDING.sub(lambda _: text, DOCUMENT.read_text()))
