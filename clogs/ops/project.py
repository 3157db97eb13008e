"""A project of the Ops-Loop on an Ocean: calls of its records, and advancing them within a request."""

from dataclasses import dataclass, field
from typing import Any

from clogs.ops.errors import not_found, wrong
from clogs.ops.queries import shown
from clogs.ops.records import STEPS, Row
from clogs.ops.settings import OpsSettings
from clogs.ops.tables import TABLES
from ocean import Caller, Ocean, RunInfo

MOST_ROUNDS = 4
"""A completed step signals its mission, which signals the next step. Later rounds are left to the next poke."""


@dataclass(frozen=True, slots=True)
class Project:
    ocean: Ocean
    settings: OpsSettings = field(default_factory=OpsSettings)

    async def call(
        self, clog_id: str, method: str, payload: Any = None, caller: Caller | None = None, key: str | None = None
    ) -> Any:
        return await self.ocean.call_clog(
            clog_id=clog_id, session_id=self.settings.project, method=method, payload=payload, caller=caller,
            request_key=key,
        )  # fmt: skip

    async def call_on(
        self, run_id: str, method: str, payload: Any = None, caller: Caller | None = None, key: str | None = None
    ) -> Any:
        return await self.ocean.call_clog(run_id=run_id, method=method, payload=payload, caller=caller, request_key=key)

    async def find(self, what: str, clog_id: str, id: Any) -> RunInfo:
        """Return the record's run, after its first tick, which makes it callable."""
        if not isinstance(id, str) or not id:
            raise wrong(f"the id of a {what.lower()} must be a text, got {id!r}")
        run = await self.ocean.get_run(id) if len(id.encode()) <= 256 else None
        if run is None or run.clog_id != clog_id or run.session_id != self.settings.project:
            raise not_found(what, id)
        if run.tick == 0 and clog_id != TABLES["ops_action_runs"].clog_id:
            await self.move(id)
        return run

    async def row(self, table: str, id: str) -> Row:
        """Return a record in the columns of its table."""
        run = await self.ocean.get_run(id)
        if run is None:
            raise not_found(table, id)
        (row,) = await shown(self.ocean, self.settings.project, TABLES[table], [run])
        return row

    async def move(self, *run_ids: str) -> None:
        """Advance these runs now. If this process dies, the next poke does it."""
        for run_id in run_ids:
            await self.ocean.advance(run_id=run_id)

    async def move_mission(self, mission_id: str) -> None:
        """Advance a mission and its steps until they have processed each other's signals."""
        for _ in range(MOST_ROUNDS):
            await self.move(mission_id)
            due = await self.ocean.list_runs(clog_id=STEPS, parent_run_id=mission_id, status="pending")
            if not due.runs:
                return
            await self.move(*(run.run_id for run in due.runs))
