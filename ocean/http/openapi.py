"""The OpenAPI 3.1 document, made from the route table."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import GenericAlias
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from ocean.http.framework.operation import Op, Repeat
from ocean.http.framework.routing import IDEMPOTENCY_KEY
from ocean.http.framework.wire import camel
from ocean.http.handlers.events import STREAM

REF = "#/components/schemas/{model}"
PARAMETER = re.compile(r"{(\w+)(?::path)?}")
BOUNDS = {"ge": "minimum", "le": "maximum"}
"""What pydantic calls them where a validator comes before them."""
ABOUT = (
    "Durable runs over HTTP. Names are camelCase, times are milliseconds since 1970, durations end in Ms. "
    "What users stored is passed on unchanged."
)
ATTRIBUTES = (
    "An attribute's value: true, false and numbers are what they look like, in double quotes anything is a text. "
    "Several times means any of them. attr.NAME.gt, .gte, .lt and .lte are a range."
)


@dataclass(frozen=True, slots=True)
class RefusalSaid:
    code: str
    message: str
    http_status: int
    retryable: bool
    request_id: str
    details: Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """The one envelope of everything that is refused."""

    error: RefusalSaid


def document(table: Sequence[Op]) -> dict[str, Any]:
    schemas, components = _schemas(table)
    paths: dict[str, Any] = {}
    for op in table:
        path = PARAMETER.sub(lambda match: f"{{{camel(match[1])}}}", op.path)
        paths.setdefault(path, {})[op.method.lower()] = _operation(op, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ocean", "version": "1", "description": ABOUT},
        "paths": paths,
        "components": {"schemas": components},
    }


def _schemas(table: Sequence[Op]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """A schema for each type that the table names, and what these refer to."""
    bodies = {op.body for op in table if op.body}
    queries = {op.query for op in table}
    answers = {answer for op in table for answer in op.answers.values() if not isinstance(answer, str)} | {Refusal}
    # In the order of their names, so that the document is the same each time. The list gives records a configuration.
    taken: list[Any] = sorted(bodies | queries, key=lambda model: model.__name__)
    given = sorted(answers, key=str)
    asked: list[Any] = [(model, "validation", TypeAdapter(model)) for model in taken]
    config = ConfigDict(alias_generator=camel)
    for answer in given:
        several: Any = GenericAlias(list, (answer,))
        asked.append((answer, "serialization", TypeAdapter(several, config=config)))
    found, definitions = TypeAdapter.json_schemas(asked, ref_template=REF)
    named = definitions["$defs"]
    schemas = {model: schema["items"] if mode == "serialization" else schema for (model, mode), schema in found.items()}
    for model in queries:
        name = model.__name__
        schemas[model] = named.pop(name, schemas[model])
    return schemas, {name: _plain(named[name]) for name in sorted(named)}


def _plain(schema: Any) -> Any:
    """Without titles, which only repeat the names of fields; bounds by their names in JSON Schema."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if not (name == "title" and isinstance(value, str))}
    return {BOUNDS.get(name, name) if isinstance(v, int) else name: _plain(v) for name, v in kept.items()}


def _operation(op: Op, schemas: dict[Any, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "operationId": f"{op.handler.__module__.rpartition('.')[2]}_{op.handler.__name__}",
        "summary": op.summary,
        "x-ocean-scope": op.scope,
        "parameters": [*_parameters(op, schemas)],
        "responses": {str(status): _response(op, answer, schemas) for status, answer in sorted(op.answers.items())},
    }
    said["responses"]["default"] = {"description": "Refused", "content": _json(schemas[Refusal])}
    if op.body:
        said["requestBody"] = {"required": True, "content": _json(schemas[op.body])}
    return said


def _parameters(op: Op, schemas: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    for name in PARAMETER.findall(op.path):
        yield {"name": camel(name), "in": "path", "required": True, "schema": {"type": "string"}}
    properties: dict[str, Any] = schemas[op.query].get("properties", {})
    for name, schema in properties.items():
        if not (op.query.takes_attributes and name == "attributes"):
            yield {"name": name, "in": "query", "schema": _plain(_given(schema))}
    if op.query.takes_attributes:
        yield {"name": "attr.NAME", "in": "query", "description": ATTRIBUTES, "schema": {"type": "string"}}
    if op.repeat in (Repeat.KEYED, Repeat.KEPT):
        schema = {"type": "string", "minLength": 1, "maxLength": 256}
        description = "The same key and request again get the first answer; with another request the key is refused."
        yield {"name": IDEMPOTENCY_KEY, "in": "header", "description": description, "schema": schema}


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is left out where a field would be null."""
    shapes = [shape for shape in schema.get("anyOf", ()) if shape != {"type": "null"}]
    return shapes[0] if len(shapes) == 1 else {k: v for k, v in schema.items() if (k, v) != ("default", None)}


def _response(op: Op, answer: Any, schemas: dict[Any, Any]) -> dict[str, Any]:
    if isinstance(answer, str):
        return {"description": answer, "content": {op.media_type: {}}}
    content = _json(schemas[answer])
    if op.is_streamed:
        content[STREAM] = {}
    description = (getattr(answer, "__doc__", None) or op.summary).strip().split("\n")[0]
    return {"description": op.summary if answer is dict else description, "content": content}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": _plain(schema)}}
