"""The log and the tables at the end of a simulation, for the final checks."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.world import World


class FinalState:
    """The log, read once, with the history and the tables."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.history = world.history
        self.db = world.db
        self.log = [{**event, "payload": json.loads(event["payload"])} for event in world.watcher.log]
        self.floor = self.one("SELECT seq FROM ocean_log_floor WHERE id = 1")
        self.deleted = {event["run_id"] for event in self.log if event["type"] == "run.deleted"}

    def of(self, *types: str) -> list[dict[str, Any]]:
        return [event for event in self.log if event["type"] in types]

    def one(self, sql: str, *values: Any) -> Any:
        row = self.db.execute(sql, values).fetchone()
        return row[0] if row else None
