"""Bodies and query strings: read up to a limit, parsed strictly, and checked against the route's model."""

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from ocean.http.framework.errors import BodyTooLarge, InvalidBody, InvalidQuery, NotJson, WrongContentType
from ocean.http.framework.responses import camel
from ocean.state.attributes import Within
from ocean.state.values import MAX_BYTES, strict_json

MOST_FIELDS_NAMED = 10
UNIONS = frozenset({"outcome", "error"})
"""Fields of a union type: pydantic adds the name of the chosen type to the location of an error inside them."""
ATTRIBUTE = "attr."
SIDES = frozenset({"gt", "gte", "lt", "lte"})
INTEGER = re.compile(r"-?[0-9]{1,16}", re.ASCII)
NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
GIVEN_TWICE = "must be given only once"

B = TypeVar("B", bound=BaseModel)
Q = TypeVar("Q", bound="Query")


class Body(BaseModel):
    """The body of a route. Unknown fields are refused, and strings are not converted to numbers."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=camel)


def _without_fraction(value: Any) -> Any:
    """Return 9 for 9.0: JSON has one type of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_without_fraction)]


async def read_body(request: Request, model: type[B], most_bytes: int = MAX_BYTES) -> B:
    """Read the request's JSON body and return it as an instance of `model`."""
    check_content_type(request, "application/json")
    return checked_body(parse_json(await read_bytes(request, most_bytes)), model)


def check_content_type(request: Request, wanted: str) -> None:
    """Raise `WrongContentType` unless the request's body has this type."""
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != wanted:
        raise WrongContentType(f"Content-Type must be {wanted}, got {kind or 'none'}")


async def read_bytes(request: Request, most: int) -> bytes:
    """Read the body. Bytes are counted as they arrive, because Content-Length is only the client's claim."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise BodyTooLarge(
                f"the body must be at most {most} bytes; store large data elsewhere and pass a reference",
                most_bytes=most,
            )
    return bytes(body)


def parse_json(body: bytes) -> Any:
    """Return the value of a JSON text; refuses duplicate keys and anything that is not strict JSON."""
    try:
        return strict_json(body.decode())
    except ValueError as error:
        raise NotJson(f"the body must be JSON: {error}") from None


def checked_body(body: Any, model: type[B]) -> B:
    """Return a parsed body as an instance of `model`, or raise `InvalidBody` with the fields that are wrong."""
    if not isinstance(body, dict):
        raise InvalidBody("the body must be a JSON object", fields=[])
    try:
        return model.model_validate(body)
    except ValidationError as error:
        problems = problems_of(error)
    raise InvalidBody(_summary(problems), fields=problems[:MOST_FIELDS_NAMED])


def problems_of(error: ValidationError) -> list[dict[str, str]]:
    """Return the field and the problem of each error that pydantic found."""
    return [_problem(each) for each in error.errors(include_url=False, include_context=False, include_input=False)]


def _problem(error: ErrorDetails) -> dict[str, str]:
    """Return one problem; `field` is empty if it concerns the whole body."""
    location = error["loc"]
    shown = [str(part) for before, part in zip((None, *location), location, strict=False) if before not in UNIONS]
    return {"field": ".".join(shown)[:200], "problem": error["msg"].removeprefix("Value error, ")[:200]}


def _summary(problems: list[dict[str, str]]) -> str:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return ": ".join(filter(None, problems[0].values())) + more


class Query(BaseModel):
    """The query string of a route. Unknown names are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=camel)
    takes_attributes: ClassVar[bool] = False

    @classmethod
    def repeatable(cls) -> frozenset[str]:
        """Return the names that may be given more than once."""
        fields = cls.model_fields.items()
        return frozenset(camel(name) for name, field in fields if _is_list(field.annotation))


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is list or any(get_origin(each) is list for each in get_args(annotation))


def _integer(value: Any) -> Any:
    if not INTEGER.fullmatch(value):
        raise ValueError("must be an integer in decimal digits")
    return int(value)


def _flag(value: Any) -> Any:
    if value not in ("true", "false"):
        raise ValueError("must be true or false")
    return value == "true"


Number = Annotated[int, BeforeValidator(_integer)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Limit = Annotated[Number, Field(ge=1, le=1_000)]


def read_query(request: Request, model: type[Q]) -> Q:
    """Return the request's query string as an instance of one of Ocean's own models."""
    attributes: dict[str, list[str]] = {}
    others: list[tuple[str, str]] = []
    for name, value in request.query_params.multi_items():
        if model.takes_attributes and name.startswith(ATTRIBUTE):
            attributes.setdefault(name.removeprefix(ATTRIBUTE), []).append(value)
        else:
            others.append((name, value))
    values = _grouped(others, model.repeatable())
    if attributes:
        values["attributes"] = read_attributes(attributes)
    elif model.takes_attributes and "attributes" in values:
        raise _invalid([{"field": "attributes", "problem": "must be written as attr.NAME=value"}])
    return _checked_query(values, model)


def read_clog_query(pairs: Iterable[tuple[str, str]], model: type[B]) -> B:
    """Return a query string as an instance of a clog's model; names of list fields may be given more than once."""
    lists = {field.alias or name for name, field in model.model_fields.items() if _is_list(field.annotation)}
    return _checked_query(_grouped(pairs, lists), model)


def _grouped(pairs: Iterable[tuple[str, str]], repeatable: Iterable[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in repeatable:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise _invalid([{"field": name[:200], "problem": GIVEN_TWICE}])
        else:
            values[name] = value
    return values


def _checked_query(values: dict[str, Any], model: type[B]) -> B:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _invalid(problems_of(error)) from None


def read_attributes(given: dict[str, list[str]]) -> dict[str, Any]:
    """Return the attribute filters: `attr.NAME=value`, repeated to match any, or a range `attr.NAME.gte=value`."""
    equal: dict[str, Any] = {}
    ranges: dict[str, dict[str, Any]] = {}
    for path, texts in given.items():
        name, _, side = path.rpartition(".")
        values = [attribute_value(path, text) for text in texts]
        if not name or side not in SIDES:
            equal[path] = values
        elif len(values) > 1:
            raise _invalid([{"field": f"{ATTRIBUTE}{path}"[:200], "problem": GIVEN_TWICE}])
        else:
            ranges.setdefault(name, {})[side] = values[0]
    both = sorted(equal.keys() & ranges.keys())
    if both:
        field = f"{ATTRIBUTE}{both[0]}"[:200]
        raise _invalid([{"field": field, "problem": "must have a value or a range, not both"}])
    return equal | {name: Within(**sides) for name, sides in ranges.items()}


def attribute_value(path: str, text: str) -> str | int | float | bool:
    """Return the value of an attribute: `true`, `false` and numbers as such; text in double quotes is a string."""
    if text in ("true", "false"):
        return text == "true"
    if NUMBER.fullmatch(text):
        number: int | float = json.loads(text)
        return number
    if text.startswith('"'):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, str):
            problem = "must be a JSON string if it begins with a double quote"
            raise _invalid([{"field": f"{ATTRIBUTE}{path}"[:200], "problem": problem}])
        return value
    return text


def _invalid(problems: list[dict[str, str]]) -> InvalidQuery:
    return InvalidQuery(_summary(problems), fields=problems[:MOST_FIELDS_NAMED])
