"""Read the recipes, and start their programs on loopback, with a free port and a folder of the test."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "wrangler-free-deploy"
SMOKE = DEPLOY / "smoke.py"
PATIENCE_S = 60
OCEAN = (sys.executable, "-W", "error", "-m", "ocean")


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PORT" and not name.startswith("OCEAN_")}
    return kept | {"PYTHONPATH": str(ROOT), "OCEAN_LOG": "off", **settings}


@contextmanager
def served(command: tuple[str, ...], folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Start a server, yield its URL, and stop it as a supervisor does: it must exit cleanly."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment({**settings, "PORT": "0"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], PATIENCE_S)[0], "it prints nothing"
        details = process.stdout.readline()
        found = re.search(r"listens on (http://127\.0\.0\.1:\d+),", details)
        assert found, details or process.communicate()[1]
        yield found[1]
        process.send_signal(signal.SIGTERM)
        _, complained = process.communicate(timeout=PATIENCE_S)
        # OCEAN_LOG=off leaves warnings and errors on.
        unexpected = [line for line in complained.splitlines() if not re.search(r" of run \S+ failed \(", line)]
        assert (process.returncode, unexpected) == (0, [])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ran(command: tuple[object, ...], settings: Mapping[str, str], folder: Path | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def smoke(url: str, clog: str, *more: str, **settings: str) -> tuple[int, str, str]:
    return ran((sys.executable, "-W", "error", SMOKE, url, clog, *more), settings)


def key_made_by(title: str, folder: Path, settings: Mapping[str, str]) -> str:
    """The key that the second of a recipe's commands makes, with the recipe's settings."""
    found = re.search(r"\bocean (keys create [^)]*)\)$", recipe(title)[1])
    assert found, title
    code, details, complained = ran((*OCEAN, *found[1].split()), settings, folder)
    assert (code, details[:6]) == (0, "ocean_"), complained
    return details.strip()


def section(title: str) -> str:
    page = (DEPLOY / "README.md").read_text()
    found = re.search(rf"^## {title}\n(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def recipe(title: str) -> list[str]:
    """The commands of the section's first block."""
    found = re.search(r"^```sh\n(.*?)^```$", section(title), re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1].splitlines()


def unit(name: str) -> dict[str, list[str]]:
    """Return a unit file's settings; each may occur more than once."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "vm" / name).read_text().splitlines():
        key, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def plain_settings(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def dockerfile() -> list[tuple[str, str]]:
    """The last stage's instructions, lines joined."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "container" / "Dockerfile").read_text())
    pairs = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, rest in pairs]


def instruction(name: str) -> str:
    return [rest for found, rest in dockerfile() if found == name][-1]


def words(text: str) -> tuple[str, ...]:
    """The exec form of an instruction."""
    return tuple(json.loads(text))


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML with CloudFormation's functions, of which only the argument is kept."""


def _argument(loader: Any, _: str, node: Any) -> Any:
    return node.value if isinstance(node, yaml.ScalarNode) else loader.construct_sequence(node, deep=True)


_Loader.add_multi_constructor("!", _argument)


def document(path: str) -> Any:
    return yaml.load((DEPLOY / path).read_text(), _Loader)
