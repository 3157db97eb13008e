"""The documents are checked: their programs run, print what is shown and have correct types; their links work."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import get_args

import pytest

from ocean.state.eligibility import HoldCode
from ocean.tools.builtin import TOOLS

pytestmark = pytest.mark.xdist_group("documents")

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part == "node_modules" for part in path.relative_to(ROOT).parts)
)
TYPED = (
    "docs/before-production.md",
    "docs/crash-testing.md",
    "docs/explain.md",
    "docs/methods-routes-webhooks.md",
    "docs/quickstart.md",
    "docs/runs-and-signals.md",
    "docs/steps-and-effects.md",
    "docs/storage.md",
    "docs/testing-a-clog.md",
    "docs/writing-a-clog.md",
)
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)\s]+)\)")
COMMANDS = (
    "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/ocean demo",
    "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && .venv/bin/pytest",
)


@dataclass(frozen=True)
class Block:
    """A fenced block; `printed` is the text block that follows it with nothing but a few words between."""

    place: str
    info: str
    body: str
    printed: str | None

    @property
    def file_name(self) -> str:
        return re.sub(r"\W", "_", self.place) + ".py"


def blocks_of(path: Path) -> Iterator[Block]:
    text = path.read_text()
    found = list(FENCE.finditer(text))
    for match, following in zip_longest(found, found[1:]):
        line = text.count("\n", 0, match.start()) + 1
        printed = None
        if following is not None and following["info"] == "text":
            between = text[match.end() : following.start()].strip()
            printed = following["body"] if between in ("", "It prints:") else None
        yield Block(f"{path.relative_to(ROOT)}:{line}", match["info"].strip(), match["body"], printed)


BLOCKS = [block for path in DOCUMENTS for block in blocks_of(path)]
PROGRAMS = [block for block in BLOCKS if block.info == "python"]
FRAGMENTS = [block for block in BLOCKS if block.info == "python fragment"]


def place(block: Block) -> str:
    return block.place


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with every program of the documents, and its output."""
    folder = tmp_path_factory.mktemp("programs")
    for program in PROGRAMS:
        (folder / program.file_name).write_text(program.body)
    scripts = [str(folder / program.file_name) for program in PROGRAMS]
    runner = str(Path(__file__).with_name("run_programs.py"))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-W", "error", runner, *scripts], env=environment, check=True, timeout=300)
    return folder


@pytest.mark.parametrize("program", PROGRAMS, ids=place)
def test_a_program_in_the_documents_runs_and_prints_what_is_shown(program: Block, outcomes: Path) -> None:
    script = outcomes / program.file_name
    printed, complained = script.with_suffix(".out").read_text(), script.with_suffix(".err").read_text()
    assert (script.with_suffix(".code").read_text(), complained) == ("0", "")
    assert printed == (program.printed or ""), "the document does not show what the program prints"


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=place)
def test_a_fragment_in_the_documents_is_python(fragment: Block) -> None:
    body = "".join(f"    {line}\n" for line in fragment.body.splitlines())
    ast.parse(f"async def fragment():\n{body}")


def test_every_block_of_python_is_a_program_or_a_fragment() -> None:
    odd = [block.place for block in BLOCKS if block.info.startswith("py") and block not in PROGRAMS + FRAGMENTS]
    assert odd == []
    assert {block.place.split(":")[0] for block in PROGRAMS} >= set(TYPED)


def test_the_programs_of_the_readme_and_the_clog_pages_are_strictly_typed(tmp_path: Path) -> None:
    files = []
    for block in [*PROGRAMS, *FRAGMENTS]:
        # The README's one fragment is a whole program, which `tests/docs/test_readme.py` runs.
        if block.place.startswith("README.md" if block in FRAGMENTS else TYPED):
            files.append(str(tmp_path / block.file_name))
            Path(files[-1]).write_text(block.body)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".mypy_cache/docs", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    broken = []
    for match in LINK.finditer(FENCE.sub("", path.read_text())):
        target, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = (path.parent / target).resolve() if target else path
        is_there = there.exists() and there.is_relative_to(ROOT)
        if not is_there or (anchor and anchor not in anchors_of(there)):
            broken.append(match["target"])
    assert broken == []


def anchors_of(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_has_the_two_commands_and_ci_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text().splitlines()
    assert [command for command in COMMANDS if command not in readme] == []
    assert COMMANDS[1] in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_clog_page_lists_every_tool_and_the_explain_page_every_hold() -> None:
    page = (ROOT / "docs" / "writing-a-clog.md").read_text()
    assert [name for name in TOOLS if f"| `{name}` |" not in page] == []
    explain = (ROOT / "docs" / "explain.md").read_text()
    assert [code for code in get_args(HoldCode) if f"`{code}`" not in explain] == []
