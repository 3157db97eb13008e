"""What this instance knows of the others: it releases the locks of those whose process is gone.

    start ──▶ look: read who is registered on this host, release who is gone ──▶ register
    poke  ──▶ ask the process table about those known (no query), and look again after `LOOK_MS`
    wait  ──▶ the same, once in `ASK_MS`, while a ticker or a caller waits for a commit or a due time

A release only lets locks expire: the next claim finds a crash, by the same rules as if the time of the lock were over.
So a wrong one costs a call, but commits nothing twice: the epoch of the lock decides what is committed, as always.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import anyio

from ocean.kernel.store import Store
from ocean.state.clock import Clock
from ocean.state.instances import UNKNOWN_PROCESS, InstanceRecord, ProcessIdentity

log = logging.getLogger("ocean.instances")

LOOK_MS = 2_000
"""How long a list of the other instances is used before a poke reads it again."""
ASK_MS = 1_000
"""How often the process table is asked."""
MOST_PEERS = 256


class ProcessTable(Protocol):
    """The processes of this machine."""

    def here(self) -> ProcessIdentity:
        """Return the identity of this process, as far as it is known."""

    def is_gone(self, record: InstanceRecord) -> bool:
        """Return whether the instance's process has certainly ended. False if that cannot be known from here."""


class Instances:
    """This instance among the others. Without a process table it neither registers nor looks."""

    def __init__(
        self, store: Store, clock: Clock, processes: ProcessTable | None, instance_id: str, longest_lock_ms: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._processes = processes
        self._instance_id = instance_id
        self._longest_lock_ms = longest_lock_ms
        self.here = UNKNOWN_PROCESS if processes is None else processes.here()
        self._place = self.here.place
        self._peers: dict[str, InstanceRecord] = {}
        self._looked_at: int | None = None
        self._asked_at = 0
        self._is_stale = False
        self._is_registered = False

    async def start(self) -> None:
        """Release who is gone, then register, before the first claim."""
        if self._processes is None:
            return
        await self.look()
        await self._store.register_instance(self._instance_id, self.here, self._longest_lock_ms)
        self._is_registered = True

    async def stop(self) -> None:
        """Delete the record of this instance. If that fails, another instance or time deletes it."""
        if self._is_registered:
            self._is_registered = False
            with suppress(Exception), anyio.CancelScope(shield=True):
                await self._store.unregister_instance(self._instance_id, self.here)

    async def before_poke(self) -> None:
        """Release who is gone. Most pokes only read the clock here."""
        if self._place is not None:
            self._is_stale = True
            await self._guarded(self._look_if_time)

    async def look(self) -> None:
        """Read which instances run on this host, and release those that are gone."""
        if self._place is None:
            return
        self._looked_at, self._is_stale = self._clock.now(), False
        found = await self._store.list_instances(self._place, MOST_PEERS)
        self._peers = {each.instance_id: each for each in found if each.process != self.here}
        if self._is_registered and all(each.instance_id != self._instance_id for each in found):
            # It was deleted: as gone, by mistake, or as not seen for long.
            await self._store.register_instance(self._instance_id, self.here, self._longest_lock_ms)
        await self._release_gone()

    async def holder(self, instance_id: str) -> InstanceRecord | None:
        """Return an instance, or None if it is not registered or has just been released because it is gone."""
        record = await self._store.get_instance(instance_id)
        if record is None or not self._is_gone(record):
            return record
        await self._release(record)
        return None

    async def others(self, limit: int) -> list[InstanceRecord]:
        """Return the registered instances of other processes, last seen first."""
        found = await self._store.list_instances(None, limit)
        return [each for each in found if each.process != self.here or self._place is None]

    async def while_waiting(self, wait: Callable[[int], Awaitable[None]], seen: int, ms: int) -> None:
        """Wait for a commit after `seen`, at most `ms`, by `wait`; meanwhile release who is gone."""
        until = self._clock.now() + ms
        while (self._peers or self._is_stale) and (left := until - self._clock.now()) > ASK_MS:
            await wait(min(left, ASK_MS))
            if self._store.commits_seen() != seen:
                return
            await self._guarded(self._look_if_time)
        await wait(max(until - self._clock.now(), 0))

    async def _look_if_time(self) -> None:
        now = self._clock.now()
        if self._is_stale and (self._looked_at is None or not 0 <= now - self._looked_at < LOOK_MS):
            await self.look()
        elif not 0 <= now - self._asked_at < ASK_MS:
            await self._release_gone()

    async def _release_gone(self) -> None:
        self._asked_at = self._clock.now()
        for record in [each for each in self._peers.values() if self._is_gone(each)]:
            await self._release(record)

    def _is_gone(self, record: InstanceRecord) -> bool:
        """Return whether the instance ran here, where processes can be compared, and its process has ended."""
        if self._processes is None or self._place is None or record.process.place != self._place:
            return False
        return self._processes.is_gone(record)

    async def _release(self, record: InstanceRecord) -> None:
        released = await self._store.release_instance(record.instance_id, record.process)
        self._peers.pop(record.instance_id, None)
        level = logging.INFO if released else logging.DEBUG
        log.log(
            level,
            "instance %s is gone (process %s): released %d locks",
            record.instance_id,
            record.process.pid,
            released,
        )

    async def _guarded(self, act: Callable[[], Awaitable[None]]) -> None:
        """A poke must not fail because it could not look: the time of the locks decides, too."""
        try:
            await act()
        except Exception as error:
            log.warning("could not look for instances that are gone (%s: %s)", type(error).__name__, error)
