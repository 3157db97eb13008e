"""The store's verbs about instances."""

from dataclasses import asdict

from ocean.state.instances import InstanceRecord, ProcessIdentity, ProcessPlace
from ocean.stores.postgres.client.batches import WriteBatches
from ocean.stores.postgres.client.reading import ReadClient
from ocean.stores.shared.instance_rules import MOST_FORGOTTEN, UNSEEN_MS, instance_from, instance_values


class InstanceVerbs(ReadClient):
    """Verbs about instances."""

    batches: WriteBatches

    async def register_instance(self, instance_id: str, process: ProcessIdentity, longest_lock_ms: int) -> None:
        more = {"longest_lock_ms": longest_lock_ms, "unseen_ms": UNSEEN_MS, "most_forgotten": MOST_FORGOTTEN}
        await self.batches.write("register_instance", {**instance_values(instance_id, process), **more})

    async def unregister_instance(self, instance_id: str, process: ProcessIdentity) -> None:
        await self.batches.write("unregister_instance", instance_values(instance_id, process))

    async def get_instance(self, instance_id: str) -> InstanceRecord | None:
        row = await self._read("instance", instance_id=instance_id)
        return None if row is None else instance_from(row)

    async def list_instances(self, place: ProcessPlace | None, limit: int) -> list[InstanceRecord]:
        where = None if place is None else asdict(place)
        return [instance_from(row) for row in await self._read("instances", place=where, limit=limit) or []]

    async def release_instance(self, instance_id: str, process: ProcessIdentity) -> int:
        return int(await self.batches.write("release_instance", instance_values(instance_id, process)))
