"""A disk that a test controls: it records what SQLite does to its files, and fails on request.

The files are real, so that locks and the shared memory of the write-ahead log are SQLite's own. Nothing is really
synced: what a power cut would leave is computed from the record (`tests.disk.power_cut`).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apsw

LASTING = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL


@dataclass(frozen=True, slots=True)
class Created:
    name: str
    syncs_folder: bool
    """Whether its first sync also syncs the folder's entries, as SQLite does for journals."""


@dataclass(frozen=True, slots=True)
class Written:
    name: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncated:
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Synced:
    name: str


@dataclass(frozen=True, slots=True)
class Deleted:
    name: str
    syncs_folder: bool


@dataclass(frozen=True, slots=True)
class Noted:
    """A note about the state outside the disk at this point of the record."""

    fact: Any


Happening = Created | Written | Truncated | Synced | Deleted | Noted


class Disk(apsw.VFS):
    """`fails` is called with the name of every disk call before it, and raises its error."""

    def __init__(self, name: str, fails: Callable[[str], None] = lambda call: None) -> None:
        super().__init__(name, "")
        self.name = name
        self.fails = fails
        self.record: list[Happening] = []

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if name is None or not flags[0] & LASTING:
            return apsw.VFSFile("", name, flags)
        self.fails("open")
        return File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.fails("delete")
        super().xDelete(filename, syncdir)
        self.record.append(Deleted(os.path.basename(filename), syncdir))

    def note(self, fact: Any) -> None:
        self.record.append(Noted(fact))


class File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        is_new = not os.path.exists(path)
        super().__init__("", name, flags)
        self._disk, self._name = disk, os.path.basename(path)
        if is_new:
            is_journal = bool(flags[0] & (apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL))
            disk.record.append(Created(self._name, is_journal))

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.fails("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        self._disk.fails("write")
        super().xWrite(data, offset)
        self._disk.record.append(Written(self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        self._disk.fails("truncate")
        super().xTruncate(newsize)
        self._disk.record.append(Truncated(self._name, newsize))

    def xSync(self, flags: int) -> None:
        self._disk.fails("sync")
        self._disk.record.append(Synced(self._name))
