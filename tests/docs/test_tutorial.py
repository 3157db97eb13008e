"""Follow docs/tutorial.md literally: write its files and run its commands, in order, in an empty folder."""

import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.kit import free_port

pytestmark = pytest.mark.xdist_group("processes")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
PATIENCE_S = 300
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"Write `([\w.]+)`:\s*\Z")
MARK = "=== block "


@dataclass(frozen=True)
class Step:
    """A block of commands with what it prints, or a file."""

    body: str
    printed: str = ""
    file: str | None = None


def steps(page: str) -> Iterator[Step]:
    found = [*FENCE.finditer(page)]
    for n, match in enumerate(found):
        if match["info"] == "sh":
            following = found[n + 1] if n + 1 < len(found) else None
            is_next = following is not None and not page[match.end() : following.start()].strip()
            printed = following["body"] if following is not None and is_next and following["info"] == "text" else ""
            yield Step(match["body"], printed)
        elif match["info"] == "python fragment":
            named = FILE.search(page[: match.start()])
            assert named, f"no file is named before:\n{match['body'][:200]}"
            yield Step(match["body"], file=named[1])
        else:
            assert match["info"] == "text", match["info"]


def stand_ins(folder: Path) -> Path:
    """Avoids downloads: a venv sees the packages of this one, and `pip` only checks its arguments."""
    folder.mkdir()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(ROOT)}
    scripts = {
        "python3": f"""#!/bin/sh
[ "$1 $2" = "-m venv" ] || exec {shlex.quote(sys.executable)} "$@"
{shlex.quote(sys.executable)} -m venv --without-pip "$3" || exit 1
printf '%s\\n' {" ".join(map(shlex.quote, sorted(packages)))} > "$3/lib/{version}/site-packages/parent.pth"
cp {shlex.quote(str(folder))}/pip {shlex.quote(str(folder))}/ocean "$3/bin/"
""",
        "pip": """#!/bin/sh
[ "$*" = "install -q $CHECKOUT pytest" ] || { echo "pip was asked for: $*" >&2; exit 1; }
""",
        "ocean": '#!/bin/sh\nexec python -m ocean "$@"\n',
    }
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def script(page: str, folder: Path) -> str:
    """Run all blocks in one shell, so that exports persist. A marker line precedes each block."""
    parts = ["exec 2>&1"]
    for n, step in enumerate(steps(page)):
        parts.append(f"echo '{MARK}{n}'")
        if step.file is None:
            parts.append(step.body)
        else:
            (folder / f"listing{n}").write_text(step.body)
            parts.append(f"cp {shlex.quote(str(folder / f'listing{n}'))} {step.file}")
    return "\n".join(parts)


def fits(shown: str, line: str) -> bool:
    """`…` stands for anything within a line. How wide a table's columns are depends on the times in them."""
    pattern = ".*".join(re.escape(part.strip()) for part in " ".join(shown.split()).split("…"))
    return re.fullmatch(pattern, " ".join(line.split())) is not None


def followed(page: str, base: Path) -> list[list[str]]:
    """What each block printed."""
    empty = base / "empty"
    empty.mkdir()
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OCEAN", "PYTEST", "PYTHON", "VIRTUAL"))
    }
    paths = {"PATH": f"{stand_ins(base / 'bin')}:{os.environ['PATH']}", "CHECKOUT": str(ROOT), "COLUMNS": "80"}
    shell = subprocess.Popen(
        ["bash", "-euc", script(page, base)],
        cwd=empty,
        env=kept | paths,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = shell.communicate(timeout=PATIENCE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, out
    return [block.splitlines() for block in re.split(rf"^{MARK}\d+\n", out, flags=re.MULTILINE)[1:]]


def test_every_block_of_the_page_prints_what_is_shown_below_it(tmp_path: Path) -> None:
    page = PAGE.replace("8080", str(free_port()))
    details = followed(page, tmp_path)
    taken = [*steps(page)]
    assert len(details) == len(taken) > 10
    for step, lines in zip(taken, details, strict=True):
        shown = step.printed.splitlines()
        is_as_shown = len(shown) == len(lines) and all(map(fits, shown, lines))
        assert is_as_shown, f"{step.body}\nis shown to print:\n{step.printed}\nbut printed:\n" + "\n".join(lines)
    assert [line.split()[3] for line in details[-1][1:]] == ["done", "done"]


def test_a_line_that_differs_is_seen() -> None:
    assert fits("next due in 6d, at …", "next due in 6d, at 2026-11-23 16:51:14.258Z")
    assert fits("hotel  waiting  …  in 6d", "hotel  waiting  12ms  in 6d")
    assert not fits("next due in 6d, at …", "next due in 5d, at 2026-11-23")
    assert not fits("1 tick: 1 ok", "1 tick: 1 done")
