"""The row of a schedule's run."""

from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from clogs.schedule.spec import Spec, read_spec
from clogs.schedule.times import Timetable


class ScheduleState(BaseModel):
    """Times up to `last_at` are settled, whether they fired or not: none of them can fire any more.

    `given` is the spec as the caller sent it; the alias is the name under which it is stored.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    given: dict[str, Any] = Field(validation_alias=AliasChoices("given", "told"), serialization_alias="told")
    created_at: int
    last_at: int
    fired: int = 0
    fired_at: int | None = None
    skipped: int = 0
    queue: list[int] = []

    @property
    def spec(self) -> Spec:
        return read_spec(self.given)

    @property
    def plan(self) -> Timetable:
        return self.spec.plan(self.created_at)

    @property
    def left(self) -> int | None:
        """How many more times may fire, not counting the queue; None without a limit."""
        limit = self.spec.limit
        return None if limit is None else max(limit - self.fired - len(self.queue), 0)

    @property
    def next_at(self) -> int | None:
        return None if self.left == 0 else self.plan.next_after(self.last_at)


def new_state(spec: Spec, created_at: int) -> ScheduleState:
    return ScheduleState(given=spec.given, created_at=created_at, last_at=created_at)
