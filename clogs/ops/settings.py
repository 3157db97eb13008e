"""Settings from environment variables, with the contract's names."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ocean import InvalidValue

DEFAULT_PROJECT = "ops"


@dataclass(frozen=True, slots=True)
class OpsSettings:
    """`project` is the session of all records. `shell_allowlist` holds absolute paths of programs."""

    project: str = DEFAULT_PROJECT
    event_batch_size: int = 25
    reaction_batch_size: int = 25
    stale_step_minutes: int = 30
    lease_minutes: int = 5
    shell_allowlist: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        given = os.environ if environ is None else environ

        def number(name: str, default: int) -> int:
            text = given.get(name, "")
            if not text:
                return default
            if not text.isascii() or not text.isdecimal() or len(text) > 6 or int(text) < 1:
                raise InvalidValue(f"{name} must be a whole number from 1 to 999999, got {text!r}")
            return int(text)

        plain = cls()
        listed = given.get("OPS_SHELL_ALLOWLIST", "")
        return cls(
            project=given.get("OPS_PROJECT") or DEFAULT_PROJECT,
            event_batch_size=number("OPS_EVENT_BATCH_SIZE", plain.event_batch_size),
            reaction_batch_size=number("OPS_REACTION_BATCH_SIZE", plain.reaction_batch_size),
            stale_step_minutes=number("OPS_STALE_STEP_MINUTES", plain.stale_step_minutes),
            lease_minutes=number("OPS_LEASE_MINUTES", plain.lease_minutes),
            shell_allowlist=tuple(part.strip() for part in listed.split(",") if part.strip()),
        )
