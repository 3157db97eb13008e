"""What is left of the files after a power cut: all that was synced, and any part of the rest.

A write that was not synced is kept, lost or garbled, sector by sector. A file whose folder was not synced since it was
created or deleted may exist or not. Bytes next to those written keep their value: SQLite relies on that.
"""

import random
from dataclasses import dataclass, field

from tests.disk.vfs import Created, Deleted, Happening, Noted, Synced, Truncated, Written

SECTOR = 512


@dataclass(eq=False, slots=True)
class Content:
    """The content of one file, under any name or none."""

    syncs_folder: bool
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[Written | Truncated] = field(default_factory=list)


class Platter:
    """Replays a record call by call; `left` returns what a power cut at that point leaves."""

    def __init__(self) -> None:
        self._files: dict[str, Content] = {}
        self._lasting: dict[str, Content] = {}

    def take_in(self, happening: Happening) -> None:
        match happening:
            case Created(name, syncs_folder):
                self._files[name] = Content(syncs_folder)
            case Written(name) | Truncated(name):
                self._files[name].unsynced.append(happening)
            case Synced(name):
                self._sync(self._files[name])
            case Deleted(name, syncs_folder):
                self._files.pop(name, None)
                if syncs_folder:
                    self._lasting = dict(self._files)
            case Noted():
                pass

    def _sync(self, file: Content) -> None:
        for change in file.unsynced:
            _apply(file.synced, change)
        file.unsynced.clear()
        if file.syncs_folder:
            self._lasting = dict(self._files)
            file.syncs_folder = False

    @property
    def has_unsynced(self) -> bool:
        return self._files != self._lasting or any(file.unsynced for file in self._files.values())

    def left(self, chance: random.Random) -> dict[str, bytes]:
        kept: dict[str, bytes] = {}
        for name in sorted(self._files.keys() | self._lasting.keys()):
            file = chance.choice([self._files.get(name), self._lasting.get(name)])
            if file is not None:
                kept[name] = _torn(file, chance)
        return kept


def _torn(file: Content, chance: random.Random) -> bytes:
    """How much is kept is random, too: all or nothing must be frequent, and any mixture possible."""
    image = bytearray(file.synced)
    share, garbled = chance.choice([0.0, 1.0, chance.random()]), chance.choice([0.0, 0.0, 0.1])
    last = chance.randint(0, len(file.unsynced)) if chance.random() < 0.5 else len(file.unsynced)
    for change in file.unsynced[:last]:
        for part in _sectors(change):
            if chance.random() < share:
                _apply(image, part)
            elif isinstance(part, Written) and chance.random() < garbled:
                _apply(image, Written(part.name, part.offset, chance.randbytes(len(part.data))))
    return bytes(image)


def _sectors(change: Written | Truncated) -> list[Written | Truncated]:
    if isinstance(change, Truncated):
        return [change]
    parts: list[Written | Truncated] = []
    start, end = change.offset, change.offset + len(change.data)
    while start < end:
        stop = min((start // SECTOR + 1) * SECTOR, end)
        parts.append(Written(change.name, start, change.data[start - change.offset : stop - change.offset]))
        start = stop
    return parts


def _apply(image: bytearray, change: Written | Truncated) -> None:
    end = change.size if isinstance(change, Truncated) else change.offset + len(change.data)
    if len(image) < end:
        image.extend(bytes(end - len(image)))
    if isinstance(change, Truncated):
        del image[end:]
    else:
        image[change.offset : end] = change.data
