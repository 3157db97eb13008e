"""Query strings: every name is known, every number is one, and what is wrong is named."""

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.requests import Request

from ocean.http.framework.bodies import problems
from ocean.http.framework.errors import InvalidQuery
from ocean.http.framework.wire import camel
from ocean.state.attributes import Within

ATTRIBUTE = "attr."
SIDES = frozenset({"gt", "gte", "lt", "lte"})
WHOLE = re.compile(r"-?[0-9]{1,16}", re.ASCII)
NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)

Q = TypeVar("Q", bound="Query")
M = TypeVar("M", bound=BaseModel)


class Query(BaseModel):
    """What a route takes after the question mark. A name it does not know is refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=camel)
    takes_attributes: ClassVar[bool] = False

    @classmethod
    def several(cls) -> frozenset[str]:
        """The names that may be repeated."""
        fields = cls.model_fields.items()
        return frozenset(camel(name) for name, field in fields if _is_list(field.annotation))


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(get_origin(each) is list for each in get_args(annotation))


def _whole(value: Any) -> Any:
    if not WHOLE.fullmatch(value):
        raise ValueError("is a whole number in digits")
    return int(value)


Number = Annotated[int, BeforeValidator(_whole)]
Limit = Annotated[Number, Field(ge=1, le=1_000)]


def read_query(request: Request, model: type[Q]) -> Q:
    asked: dict[str, Any] = {}
    attributes: dict[str, list[str]] = {}
    several = model.several()
    for name, value in request.query_params.multi_items():
        if model.takes_attributes and name.startswith(ATTRIBUTE):
            attributes.setdefault(name.removeprefix(ATTRIBUTE), []).append(value)
        elif name in several:
            asked.setdefault(name, []).append(value)
        elif name in asked:
            raise _refused([{"field": name[:200], "problem": "is given twice, and takes one value"}])
        else:
            asked[name] = value
    if attributes:
        asked["attributes"] = read_attributes(attributes)
    elif model.takes_attributes and "attributes" in asked:
        raise _refused([{"field": "attributes", "problem": "are asked for as attr.NAME=value"}])
    try:
        return model.model_validate(asked)
    except ValidationError as error:
        raise _refused(problems(error)) from None


def fitted_query(pairs: Iterable[tuple[str, str]], model: type[M]) -> M:
    """What came after the question mark as a clog's own model has it; a name that it has as a list may be repeated."""
    lists = {field.alias or name for name, field in model.model_fields.items() if _is_list(field.annotation)}
    asked: dict[str, Any] = {}
    for name, value in pairs:
        if name in lists:
            asked.setdefault(name, []).append(value)
        elif name in asked:
            raise _refused([{"field": name[:200], "problem": "is given twice, and takes one value"}])
        else:
            asked[name] = value
    try:
        return model.model_validate(asked)
    except ValidationError as error:
        raise _refused(problems(error)) from None


def read_attributes(asked: dict[str, list[str]]) -> dict[str, Any]:
    """`attr.NAME=value`, several times for any of several; `attr.NAME.gte=value` and the like for a range."""
    equal: dict[str, Any] = {}
    ranges: dict[str, dict[str, Any]] = {}
    for place, texts in asked.items():
        name, _, side = place.rpartition(".")
        values = [attribute_value(place, text) for text in texts]
        if not name or side not in SIDES:
            equal[place] = values
        elif len(values) > 1:
            raise _refused([{"field": f"{ATTRIBUTE}{place}"[:200], "problem": "is given twice, and takes one value"}])
        else:
            ranges.setdefault(name, {})[side] = values[0]
    both = sorted(equal.keys() & ranges.keys())
    if both:
        raise _refused([{"field": f"{ATTRIBUTE}{both[0]}"[:200], "problem": "has both a value and a range"}])
    return equal | {name: Within(**sides) for name, sides in ranges.items()}


def attribute_value(place: str, text: str) -> str | int | float | bool:
    """`true`, `false` and numbers are what they look like; in double quotes anything is a text."""
    if text in ("true", "false"):
        return text == "true"
    if NUMBER.fullmatch(text):
        number: int | float = json.loads(text)
        return number
    if text.startswith('"'):
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, str):
            raise _refused(
                [{"field": f"{ATTRIBUTE}{place}"[:200], "problem": "begins with a quote and is no JSON text"}]
            )
        return said
    return text


def _refused(wrong: list[dict[str, str]]) -> InvalidQuery:
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return InvalidQuery(": ".join(filter(None, wrong[0].values())) + more, fields=wrong[:10])
