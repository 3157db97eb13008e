"""Credentials: rows, events and models contain only their names; only a running tool gets their values.

Before a tool is called, the references among its arguments are resolved. While it runs, `reveal` returns the values;
afterwards it raises. The values are removed from what the tool returns, raises or logs.
"""

import base64
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast
from urllib.parse import quote, quote_plus

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ocean.state.errors import ClogError, InvalidValue, ToolFailed
from ocean.state.redact import looks_secret

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
VARIABLE = "OCEAN_CREDENTIAL_"
INVALID_REF = "credential_ref"
"""The type of pydantic's error about an invalid reference."""
SHORTEST = 4
"""A shorter value would be removed from ordinary words."""
SHORTEST_LINE = 16

Credentials = Mapping[str, str] | Callable[[str], str | Awaitable[str | None] | None]
"""Where values come from: a mapping, or a function of the name, which may be async and returns None for unknown."""

_revealed: ContextVar[dict[str, str] | None] = ContextVar("ocean_revealed", default=None)


class CredentialRef:
    """The name of a credential, as a tool's parameter: `async def send(to: str, key: CredentialRef)`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        # The argument may be the value itself, so it is not shown.
        if isinstance(name, str) and looks_secret(name):
            raise InvalidValue("a credential must be given by its name; this looks like the value itself")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidValue("a credential's name must be like 'mail' or 'github.bot'; the value given is not shown")
        self.name = name

    def reveal(self) -> str:
        """Return the value, while the tool runs that was called with it. Pass it only to the service it is for."""
        values = _revealed.get()
        if values is None or self.name not in values:
            raise ClogError(f"credential {self.name!r} can be revealed only inside a tool that is called with it")
        return values[self.name]

    def __repr__(self) -> str:
        return f"CredentialRef({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CredentialRef) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def made(value: Any) -> CredentialRef:
            try:
                return value if isinstance(value, cls) else cls(value)
            except InvalidValue as error:
                raise PydanticCustomError(INVALID_REF, "{message}", {"message": error.message}) from None

        serialization = core_schema.plain_serializer_function_ser_schema(lambda ref: ref.name)
        return core_schema.no_info_plain_validator_function(made, serialization=serialization)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        about = "The name of a credential; never its value."
        return {"type": "string", "pattern": f"^{NAME.pattern}$", "description": about}


def from_environment(environ: Mapping[str, str]) -> Credentials:
    """Read values from the environment: `mail` is `OCEAN_CREDENTIAL_MAIL`; other characters become underscores."""
    return lambda name: environ.get(variable_of(name))


def variable_of(name: str) -> str:
    return VARIABLE + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def refs_in(value: Any) -> Iterator[CredentialRef]:
    """Yield every reference in a tool's arguments, at any depth."""
    if isinstance(value, CredentialRef):
        yield value
    elif isinstance(value, BaseModel):
        for item in (*value.__dict__.values(), *(value.model_extra or {}).values()):
            yield from refs_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from refs_in(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from refs_in(item)


async def resolved(names: Collection[str], credentials: Credentials | None, tool: str) -> dict[str, str]:
    return {name: await _value_of(name, credentials, tool) for name in sorted(names)}


async def _value_of(name: str, credentials: Credentials | None, tool: str) -> str:
    problem = None
    value: Any = None
    try:
        value = await _look_up(name, credentials)
    except Exception as error:
        # The text of the error may contain the value.
        problem = f"could not be looked up ({type(error).__name__})"
    if problem is None and value is None:
        problem = f"is not known here: set {variable_of(name)}, or give Ocean.open(credentials=…)"
    if problem is None and (not isinstance(value, str) or len(value) < SHORTEST):
        problem = f"must be a text of at least {SHORTEST} characters, or it could not be kept out of what is stored"
    if problem is not None:
        raise ToolFailed(f"credential {name!r} {problem}", code="credential_missing", tool=tool)
    return cast(str, value)


async def _look_up(name: str, credentials: Credentials | None) -> str | None:
    if credentials is None or isinstance(credentials, Mapping):
        return None if credentials is None else credentials.get(name)
    value = credentials(name)
    return await value if inspect.isawaitable(value) else value


@contextmanager
def revealing(values: dict[str, str]) -> Iterator[None]:
    """Allow `reveal` until the end of the block: in this task, and in threads and tasks that it starts."""
    token = _revealed.set(values)
    try:
        yield
    finally:
        _revealed.reset(token)
        values.clear()


class Scrubber:
    """Removes the values of credentials from what a tool returns or raises, plain or in the usual encodings."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._instead: dict[str, str] = {}
        for name, value in values.items():
            self._instead |= dict.fromkeys(_forms(value), f"[credential {name}]")
        longest_first = sorted(self._instead, key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        return text if self._found is None else self._found.sub(lambda match: self._instead[match[0]], text)

    def value(self, value: Any) -> Any:
        """Remove them from every text of a JSON value, including the names of objects."""
        if self._found is None:
            return value
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(name): self.value(item) for name, item in value.items()}
            case list():
                return [self.value(item) for item in value]
            case int() | float() if not isinstance(value, bool) and self.text(str(value)) != str(value):
                return self.text(str(value))
            case _:
                return value


def _forms(value: str) -> set[str]:
    raw = value.encode("utf-8", "surrogatepass")
    plain = base64.b64encode(raw).decode()
    lines = [line for line in value.splitlines() if len(line) >= SHORTEST_LINE]
    escaped = [repr(value)[1:-1], repr(raw)[2:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]]
    encoded = [plain, plain.rstrip("="), base64.urlsafe_b64encode(raw).decode().rstrip("="), raw.hex()]
    return {value, *lines, *escaped, *encoded, quote(raw), quote(raw, safe=""), quote_plus(raw)}


def scrubbed_now(text: str) -> str:
    """Return a log text without the credentials of the tool that is running, if one is."""
    values = _revealed.get()
    return Scrubber(values).text(text) if values else text
