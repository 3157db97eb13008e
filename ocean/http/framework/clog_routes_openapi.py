"""What clogs have mounted, as the OpenAPI document says it. Which webhooks there are is not said to everybody."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from ocean.clog.routes import JSON, PARAMETER, Route
from ocean.clog.webhooks import WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP
from ocean.http.framework.routing import IDEMPOTENCY_KEY
from ocean.http.handlers.webhooks import HOOKS

REF = "#/components/schemas/{model}"
TEXT = {"type": "string"}


def described(routes: Sequence[Route], has_hooks: bool) -> dict[str, Any]:
    paths: dict[str, Any] = {HOOKS: {"post": _hook()}} if has_hooks else {}
    schemas: dict[str, Any] = {}
    for route in routes:
        path = PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schemas)
    return {"paths": paths, "schemas": schemas}


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.clog_id}_{route.method.lower()}{route.path}").strip("_"),
        "summary": route.summary or f"Of the clog {route.clog_id}",
        "tags": [route.clog_id],
        "x-ocean-scope": "the clog's own" if callable(route.access) else route.access,
        "parameters": [*_parameters(route, schemas)],
        "responses": {"default": _content("As the clog's contract has it", {})},
    }
    if route.body is not None:
        said["requestBody"] = _content("The body", _schema(route.body, route.clog_id, schemas))
    elif route.method not in ("GET", "DELETE") and route.most_bytes:
        said["requestBody"] = {"description": "The body", "content": {route.content_type or "*/*": {}}}
    return said


def _parameters(route: Route, schemas: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in route.parameters:
        yield {"name": name, "in": "path", "required": True, "schema": TEXT}
    if route.query is not None:
        shape = _parts(route.query, route.clog_id, schemas)
        for name, schema in shape.get("properties", {}).items():
            yield {"name": name, "in": "query", "required": name in shape.get("required", ()), "schema": schema}
    if route.keyed:
        yield {"name": IDEMPOTENCY_KEY, "in": "header", "schema": {**TEXT, "minLength": 1, "maxLength": 256}}


def _schema(model: type[BaseModel], clog_id: str, schemas: dict[str, Any]) -> dict[str, Any]:
    name = f"{clog_id}.{model.__name__}"
    schemas[name] = _parts(model, clog_id, schemas)
    return {"$ref": REF.format(model=name)}


def _parts(model: type[BaseModel], clog_id: str, schemas: dict[str, Any]) -> dict[str, Any]:
    """The model's schema; what it refers to is kept under the clog's name, so that two clogs' models never meet."""
    schema = model.model_json_schema(ref_template=REF.format(model=f"{clog_id}.{{model}}"))
    for name, part in schema.pop("$defs", {}).items():
        schemas[f"{clog_id}.{name}"] = part
    return schema


def _hook() -> dict[str, Any]:
    headers = (WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE)
    places = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in ("clog_id", "name")]
    return {
        "operationId": "hooks_receive",
        "summary": "Deliver to a clog's webhook, signed as Standard Webhooks has it",
        "x-ocean-scope": "open",
        "parameters": [*places, *({"name": h, "in": "header", "required": True, "schema": TEXT} for h in headers)],
        "requestBody": _content("What is delivered", {}),
        "responses": {"200": _content("What the handler answered", {}), "default": _content("Refused", {})},
    }


def _content(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"schema": schema}}}
