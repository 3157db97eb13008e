"""Credentials: rows, events and models have the name of one, and only a tool that is being called has its value.

Before a tool is called, the references among its arguments are resolved; while it runs, `reveal` answers; afterwards it
does not. What the tool answers, raises or logs meanwhile is searched for the values, which are taken out.
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
UNFIT = "credential_ref"
"""The type of pydantic's error about a reference that is none."""
SHORTEST = 4
"""A shorter value would be taken out of every other word."""
SHORTEST_LINE = 16

Credentials = Mapping[str, str] | Callable[[str], str | Awaitable[str | None] | None]
"""Where values come from: a mapping, or a function of the name, which may be async; None is not there."""

_revealed: ContextVar[dict[str, str] | None] = ContextVar("ocean_revealed", default=None)


class CredentialRef:
    """The name of a credential, as a tool's parameter: `async def send(to: str, key: CredentialRef)`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        # What was given may be the value itself, so it is not repeated.
        if isinstance(name, str) and looks_secret(name):
            raise InvalidValue("a credential is named, and this looks like one itself: pass the name it is kept under")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidValue("a credential's name is like 'mail' or 'github.bot'; what was given is not shown")
        self.name = name

    def reveal(self) -> str:
        """Its value, while the tool runs that was called with it. Give it to nobody but the service it is for."""
        values = _revealed.get()
        if values is None or self.name not in values:
            raise ClogError(f"credential {self.name!r} is there only inside a tool that is being called with it")
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
                raise PydanticCustomError(UNFIT, "{said}", {"said": error.message}) from None

        serialization = core_schema.plain_serializer_function_ser_schema(lambda ref: ref.name)
        return core_schema.no_info_plain_validator_function(made, serialization=serialization)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        about = "The name of a credential; never its value."
        return {"type": "string", "pattern": f"^{NAME.pattern}$", "description": about}


def from_environment(environ: Mapping[str, str]) -> Credentials:
    """`mail` is `OCEAN_CREDENTIAL_MAIL`; what is neither letter nor digit becomes an underscore."""
    return lambda name: environ.get(variable_of(name))


def variable_of(name: str) -> str:
    return VARIABLE + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def refs_in(value: Any) -> Iterator[CredentialRef]:
    """Every reference in a tool's arguments, however deep."""
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
        value = await _asked(name, credentials)
    except Exception as error:
        # Its text may have the value, or another one.
        problem = f"could not be looked up ({type(error).__name__})"
    if problem is None and value is None:
        problem = f"is not known here: set {variable_of(name)}, or give Ocean.open(credentials=…)"
    if problem is None and (not isinstance(value, str) or len(value) < SHORTEST):
        problem = f"is no text of at least {SHORTEST} characters, so it could not be kept out of what is stored"
    if problem is not None:
        raise ToolFailed(f"credential {name!r} {problem}", code="credential_missing", tool=tool)
    return cast(str, value)


async def _asked(name: str, credentials: Credentials | None) -> str | None:
    if credentials is None or isinstance(credentials, Mapping):
        return None if credentials is None else credentials.get(name)
    answer = credentials(name)
    return await answer if inspect.isawaitable(answer) else answer


@contextmanager
def revealing(values: dict[str, str]) -> Iterator[None]:
    """Inside, `reveal` answers: in this task, and in threads and tasks that it starts, until the end of the block."""
    token = _revealed.set(values)
    try:
        yield
    finally:
        _revealed.reset(token)
        values.clear()


class Scrubber:
    """Takes the values of credentials out of what a tool gives away, plain or encoded in the usual ways."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._instead: dict[str, str] = {}
        for name, value in values.items():
            self._instead |= dict.fromkeys(_forms(value), f"[credential {name}]")
        longest_first = sorted(self._instead, key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        return text if self._found is None else self._found.sub(lambda match: self._instead[match[0]], text)

    def value(self, value: Any) -> Any:
        """The same for every text in a JSON value, names of objects too."""
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
    """For the log: what a tool writes to it while it has credentials."""
    values = _revealed.get()
    return Scrubber(values).text(text) if values else text
