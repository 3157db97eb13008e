"""What can be said of a database from outside, before it is opened."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """`schema` is None if there is no such database; `trouble` says why it cannot be read."""

    engine: str
    engine_version: str
    is_engine_new_enough: bool
    place: str
    newest_schema: int
    schema: int | None = None
    journal_mode: str | None = None
    trouble: str | None = None
