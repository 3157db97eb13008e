"""Bodies: read up to a limit, parsed strictly, and checked field by field; what is wrong is named."""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from ocean.http.framework.errors import BodyTooLarge, InvalidBody, NotJson, WrongContentType
from ocean.http.framework.wire import camel
from ocean.state.values import MAX_BYTES, strict_json

MOST_FIELDS_NAMED = 10
TAGGED = frozenset({"outcome", "error"})
"""Fields that are one of several shapes: pydantic adds the shape's name to the place of what is wrong inside."""

B = TypeVar("B", bound=BaseModel)


class Body(BaseModel):
    """What a route takes. A field it does not know is refused, and no text is taken for a number."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, alias_generator=camel)


def _whole(value: Any) -> Any:
    """JSON does not tell 9.0 from 9."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]


async def read_body(request: Request, model: type[B], most_bytes: int = MAX_BYTES) -> B:
    check_content_type(request, "application/json")
    return checked(parsed(await read_bytes(request, most_bytes)), model)


def check_content_type(request: Request, wanted: str) -> None:
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != wanted:
        raise WrongContentType(f"the body is {wanted}, got {kind or 'no Content-Type'}")


async def read_bytes(request: Request, most: int) -> bytes:
    """Counted as they arrive: Content-Length is only what a client says."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise BodyTooLarge(f"the body is over {most} bytes: store it elsewhere, pass a reference", most_bytes=most)
    return bytes(body)


def parsed(body: bytes) -> Any:
    try:
        return strict_json(body.decode())
    except ValueError as error:
        raise NotJson(f"the body is not JSON: {error}") from None


def checked(body: Any, model: type[B]) -> B:
    if not isinstance(body, dict):
        raise InvalidBody("the body is a JSON object", fields=[])
    try:
        return model.model_validate(body)
    except ValidationError as error:
        wrong = problems(error)
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    raise InvalidBody(": ".join(filter(None, wrong[0].values())) + more, fields=wrong[:MOST_FIELDS_NAMED])


def problems(error: ValidationError) -> list[dict[str, str]]:
    return [_problem(each) for each in error.errors(include_url=False, include_context=False, include_input=False)]


def _problem(error: ErrorDetails) -> dict[str, str]:
    """What is wrong with the body as a whole has no field."""
    place = error["loc"]
    told = [str(part) for before, part in zip((None, *place), place, strict=False) if before not in TAGGED]
    return {"field": ".".join(told)[:200], "problem": error["msg"].removeprefix("Value error, ")[:200]}
