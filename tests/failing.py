"""An author's module whose functions raise, and the lines where they do."""

import copy
import sys
from pathlib import Path
from typing import Any, NoReturn

import anyio

NAME = "tests/failing.py"
SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


def line_of(mark: str) -> int:
    """Return the number of the line that ends with this comment."""
    (number,) = (number for number, line in enumerate(SOURCE, 1) if line.endswith(f"# {mark}"))
    return number


def place_in(error: Any) -> tuple[str, int, str]:
    """Return file, line and function of an error's place."""
    where = error["where"]
    return where["file"], where["line"], where["function"]


def charge(card: object = "4711") -> NoReturn:
    raise ValueError(f"no such card {card}")  # charge


async def charge_later() -> None:
    await anyio.lowlevel.checkpoint()
    charge()


def recurse(depth: int = 0) -> int:
    return recurse(depth + 1)  # recurse


def ping(depth: int = 0) -> int:
    return pong(depth + 1)  # ping


def pong(depth: int = 0) -> int:
    return ping(depth + 1)  # pong


class Uncopied:
    def __deepcopy__(self, memo: object) -> NoReturn:
        charge()


def copy_deeply() -> None:
    """Raise below hundreds of frames of the standard library."""
    nested: Any = Uncopied()
    for depth in range(300):
        nested = [nested] if depth % 2 else {"a": nested}
    copy.deepcopy(nested)  # copy


def leak() -> NoReturn:
    raise ValueError("the login failed: password=hunter22 and token: abcdef123")  # leak


def name_a_secret() -> NoReturn:
    raise KeyError(connect(api_key="sk-0123456789abcdefghij"))  # secret argument


def connect(api_key: str) -> int:
    return len(api_key)


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    @property
    def code(self) -> str:
        raise RuntimeError("no code either")


def chain() -> None:
    try:
        charge()
    except ValueError as error:
        raise LookupError("the order is lost") from error  # chain


async def group() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(charge_later)


def loud(text: str) -> NoReturn:
    raise ValueError(text)


def imported(folder: Path, name: str) -> Any:
    """Import a module from a folder."""
    sys.path.insert(0, str(folder))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(folder))
