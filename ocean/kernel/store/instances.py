"""The verbs about instances: which are registered, and taking the locks of one whose process is gone."""

from typing import Protocol

from ocean.state.instances import InstanceRecord, ProcessIdentity, ProcessPlace


class StoreInstances(Protocol):
    """What instances know of each other. A renewal of locks also records that their instance was seen."""

    async def register_instance(self, instance_id: str, process: ProcessIdentity, longest_lock_ms: int) -> None:
        """Record an instance, as started and seen now.

        If another process has registered the same id, nothing is known of either from then on: the process of the
        record becomes unknown, so that the end of one does not release the locks of the other. Records that were not
        seen for a week, and whose instance holds no run, are deleted.
        """

    async def unregister_instance(self, instance_id: str, process: ProcessIdentity) -> None:
        """Delete the record of an instance, if it is of this process."""

    async def get_instance(self, instance_id: str) -> InstanceRecord | None: ...

    async def list_instances(self, place: ProcessPlace | None, limit: int) -> list[InstanceRecord]:
        """Return the instances whose process can be seen from a place, or all, last seen first."""

    async def release_instance(self, instance_id: str, process: ProcessIdentity) -> int:
        """Let the locks of an instance expire now, delete its record, and return the number of locks.

        Only if the record is still of this process. Leases are not released: external workers hold them. Epochs do
        not change, so an instance that is alive after all keeps what it commits before another one claims the run.
        """
