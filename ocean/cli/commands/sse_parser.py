"""Server-Sent Events out of the bytes in which they come."""

import codecs
import io
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST = 16 * 1024 * 1024
"""Of a frame that has no end yet, in letters: an event is far shorter."""


class NoFrames(ValueError):
    """What comes is no stream of events."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`data` is None in what is no event: a ping, or the place where a stream begins."""

    id: str | None
    data: str | None


class Frames:
    """Bytes in, cut anywhere; frames out as soon as they are whole. What has no end when the bytes end is none."""

    def __init__(self) -> None:
        self._letters = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")(), translate=True)
        self._rest = ""

    def of(self, some: bytes) -> Iterator[Frame]:
        try:
            self._rest += self._letters.decode(some)
        except UnicodeDecodeError:
            raise NoFrames("what comes is not UTF-8") from None
        *whole, self._rest = self._rest.split("\n\n")
        if len(self._rest) > LONGEST:
            raise NoFrames(f"a frame is longer than {LONGEST} letters")
        for block in whole:
            yield _frame(block)


def _frame(block: str) -> Frame:
    """A name, a colon, one space or none, a value; what begins with a colon is a comment."""
    said: dict[str, list[str]] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        said.setdefault(name, []).append(value.removeprefix(" "))
    return Frame(said["id"][-1] if "id" in said else None, "\n".join(said["data"]) if "data" in said else None)
