"""The reaction matrix: which events a pattern matches, and how its template is filled in. Pure; evaluates no code."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Source = Literal["api", "trigger", "reaction", "manual"]
SOURCES: tuple[Source, ...] = get_args(Source)
Name = Annotated[str, Field(min_length=1, max_length=64)]
EventType = Annotated[str, Field(min_length=1, max_length=200)]
MOST_FILLED_IN = 256 * 1024
VARIABLE = re.compile(r"{{ *([A-Za-z0-9_.-]{1,200}) *}}")


class PolicyModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Pattern(PolicyModel):
    """A pattern of the reaction matrix. `type` is another name for `event_type`; without either, any type matches."""

    id: Name
    event_type: EventType | list[EventType] = "*"
    tags: list[str] = []
    source: str | None = None
    probability: Annotated[float, Field(ge=0, le=1)] = 1.0
    cooldown_minutes: Annotated[float, Field(ge=0, le=525_600)] = 0
    template: dict[str, Any]
    proposal_source: Source = "reaction"
    dedupe_key: str | None = None
    enabled: bool = True

    @model_validator(mode="before")
    @classmethod
    def _accept_other_names(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        given = dict(value)
        for name, other in (("type", "event_type"), ("pattern_id", "id"), ("proposal_template", "template")):
            if name in given:
                if other in given:
                    raise ValueError(f"{name} and {other} are the same field; only one of them must be given")
                given[other] = given.pop(name)
        return given

    @field_validator("event_type")
    @classmethod
    def _check_not_empty(cls, value: Any) -> Any:
        if value == []:
            raise ValueError('an empty list matches nothing; use "*" for any type')
        return value


class ReactionMatrix(PolicyModel):
    patterns: list[Pattern] = []

    @model_validator(mode="before")
    @classmethod
    def _accept_list(cls, value: Any) -> Any:
        return {"patterns": value} if isinstance(value, list) else value

    @field_validator("patterns")
    @classmethod
    def _check_ids(cls, patterns: list[Pattern]) -> list[Pattern]:
        ids = [pattern.id for pattern in patterns]
        if twice := sorted({id for id in ids if ids.count(id) > 1}):
            raise ValueError(f"pattern ids must differ; {twice[0]!r} is used twice")
        return patterns


def matches(pattern: Pattern, event_type: str, data: Any) -> bool:
    """Return whether type, all tags and source match; chance and cooldown are checked afterwards."""
    kinds = [pattern.event_type] if isinstance(pattern.event_type, str) else pattern.event_type
    facts = data if isinstance(data, dict) else {}
    tags = facts.get("tags") if isinstance(facts.get("tags"), list) else []
    return (
        pattern.enabled
        and any(_type_matches(kind, event_type) for kind in kinds)
        and all(tag in (tags or ()) for tag in pattern.tags)
        and pattern.source in (None, facts.get("source"))
    )


def _type_matches(wanted: str, event_type: str) -> bool:
    """Match with `*` for any text, also in the middle: `step:*`, `deploy:*:failed`."""
    parts = wanted.split("*")
    if len(parts) == 1:
        return wanted == event_type
    if len(event_type) < sum(map(len, parts)) or not event_type.startswith(parts[0]):
        return False
    at = len(parts[0])
    for part in parts[1:-1]:
        found = event_type.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return event_type.endswith(parts[-1]) and len(event_type) - len(parts[-1]) >= at


class RenderedTooLarge(Exception):
    """The filled-in template would be larger than a proposal may be."""


def render(template: Any, event: Mapping[str, Any]) -> Any:
    """Return the template with `{{event.data.field}}` filled in; variables that the event lacks stay as they are."""
    return _Renderer(event).of(template)


class _Renderer:
    def __init__(self, event: Mapping[str, Any]) -> None:
        self.known = {**event, "event": event}
        self.characters_left = MOST_FILLED_IN

    def of(self, template: Any) -> Any:
        if isinstance(template, dict):
            return {name: self.of(value) for name, value in template.items()}
        if isinstance(template, list):
            return [self.of(value) for value in template]
        return VARIABLE.sub(self._fill, template) if isinstance(template, str) else template

    def _fill(self, found: "re.Match[str]") -> str:
        value = _look_up(found[1].split("."), self.known)
        if value is None:
            return found[0]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        self.characters_left -= len(text)
        if self.characters_left < 0:
            raise RenderedTooLarge(
                f"the values filled into the template must have at most {MOST_FILLED_IN} characters in total"
            )
        return text


def _look_up(path: list[str], value: Any) -> Any:
    for name in path:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def unfilled(template: Any) -> list[str]:
    """Return the variables that are left in a rendered template."""
    if isinstance(template, dict):
        return [name for value in template.values() for name in unfilled(value)]
    if isinstance(template, list):
        return [name for value in template for name in unfilled(value)]
    return VARIABLE.findall(template) if isinstance(template, str) else []
