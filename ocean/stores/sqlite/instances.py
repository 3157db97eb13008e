"""The store's verbs about instances."""

from dataclasses import asdict

from ocean.state.instances import InstanceRecord, ProcessIdentity, ProcessPlace
from ocean.state.records import Run, RunStatus
from ocean.state.transitions import lock_released
from ocean.stores.shared.instance_rules import MOST_FORGOTTEN, UNSEEN_MS, instance_from, instance_values
from ocean.stores.sqlite.engine.executor import UnitExecutor
from ocean.stores.sqlite.engine.unit_of_work import Unit


class SqliteInstanceStore(UnitExecutor):
    """Verbs about instances."""

    async def register_instance(self, instance_id: str, process: ProcessIdentity, longest_lock_ms: int) -> None:
        def act(u: Unit) -> None:
            _forget_unseen(u)
            u.do(
                "register_instance",
                **instance_values(instance_id, process),
                longest_lock_ms=longest_lock_ms,
                now=u.now,
            )

        await self._write(act)

    async def unregister_instance(self, instance_id: str, process: ProcessIdentity) -> None:
        await self._write(lambda u: u.do("delete_instance", **instance_values(instance_id, process)))

    async def get_instance(self, instance_id: str) -> InstanceRecord | None:
        def act(u: Unit) -> InstanceRecord | None:
            row = u.one("get_instance", instance_id=instance_id)
            return None if row is None else instance_from(row)

        return await self._read(act)

    async def list_instances(self, place: ProcessPlace | None, limit: int) -> list[InstanceRecord]:
        def act(u: Unit) -> list[InstanceRecord]:
            if place is None:
                rows = u.all("list_instances", limit=limit)
            else:
                rows = u.all("list_instances_at", **asdict(place), limit=limit)
            return [instance_from(row) for row in rows]

        return await self._read(act)

    async def release_instance(self, instance_id: str, process: ProcessIdentity) -> int:
        def act(u: Unit) -> int:
            if not u.do("delete_instance", **instance_values(instance_id, process)):
                return 0
            held = _runs_held(u, instance_id)
            for run in held:
                u.save(lock_released(run, u.now))
            return len(held)

        return await self._write(act)


def _runs_held(u: Unit, instance_id: str) -> list[Run]:
    """The runs that an instance has locked, found by clog: locks have no index, which every claim would pay for."""
    stored = [
        row["run_id"]
        for clog in u.all("list_clogs")
        for row in u.stored("active_of_clog", clog_id=clog["clog_id"], instance_id=instance_id)
    ]
    runs = map(u.run, dict.fromkeys([*stored, *(run.run_id for run in u.buffered_runs())]))
    return [run for run in runs if run.status is RunStatus.ACTIVE and run.locked_by == instance_id and not run.leased]


def _forget_unseen(u: Unit) -> None:
    for row in u.all("unseen_instances", before=u.now - UNSEEN_MS, limit=MOST_FORGOTTEN):
        if not _runs_held(u, row["instance_id"]):
            u.do("delete_unseen_instance", instance_id=row["instance_id"])
