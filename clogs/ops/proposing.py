"""What a proposal must say before anybody decides on it. Pure."""

from collections.abc import Mapping
from typing import Any

from clogs.ops.matrix import SOURCES
from clogs.ops.records import Row
from clogs.ops.refusals import check_size, too_long, violates
from clogs.ops.templates import checked_template

MOST_KEY_BYTES = 200


def proposed(dedupe_key: Any, source: Any, template: Any) -> Row:
    if source not in SOURCES:
        raise violates(
            f'value {source!r} violates check constraint "ops_mission_proposals_source_check": '
            f"use one of {', '.join(SOURCES)}"
        )
    return {"dedupe_key": checked_key(dedupe_key), "source": source, "template": checked_template(template)}


def checked_key(dedupe_key: Any) -> str | None:
    if dedupe_key is None:
        return None
    if not isinstance(dedupe_key, str) or not dedupe_key:
        raise violates("dedupe_key is a text that is not empty, or null for none")
    if len(dedupe_key.encode()) > MOST_KEY_BYTES:
        raise too_long("dedupe_key", MOST_KEY_BYTES)
    return dedupe_key


EVENT_FIELDS = ("type", "data", "mission_id", "dedupe_key")
MOST_TYPE_BYTES = 200
MOST_DATA_BYTES = 256 * 1024


def checked_event(event: Any) -> Row:
    """An agent event as it is inserted."""
    if not isinstance(event, Mapping):
        raise violates("an event is a JSON object")
    for name in event:
        if name not in EVENT_FIELDS:
            raise violates(f"an event has no field {name!r}; it has {', '.join(EVENT_FIELDS)}")
    type, data, mission_id = event.get("type"), event.get("data"), event.get("mission_id")
    if not isinstance(type, str) or not type:
        raise violates("event.type is a text that is not empty")
    if len(type.encode()) > MOST_TYPE_BYTES:
        raise too_long("event.type", MOST_TYPE_BYTES)
    if not isinstance(data, Mapping):
        raise violates("event.data is a JSON object")
    check_size(data, "event.data", MOST_DATA_BYTES)
    if mission_id is not None and (not isinstance(mission_id, str) or not 0 < len(mission_id.encode()) <= 256):
        raise violates("event.mission_id is the id of a mission, or null")
    return {
        "type": type,
        "data": dict(data),
        "mission_id": mission_id,
        "dedupe_key": checked_key(event.get("dedupe_key")),
    }
