"""`GET /openapi.json`, and `GET /docs`: the same document as a page that needs no scripts."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from html import escape
from typing import Any

from starlette.responses import HTMLResponse, Response

from ocean.http.framework.call import HandlerCall, ServerState
from ocean.http.framework.responses import SAFE_HEADERS, JsonResponse
from ocean.http.openapi import document

POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

cached_document = lru_cache(maxsize=4)(document)


async def openapi_json(call: HandlerCall) -> Response:
    """Respond with the OpenAPI document."""
    content = _rendered_once(call.server, "openapi.json", lambda api: JsonResponse(api).body)
    return Response(content, headers=SAFE_HEADERS, media_type=JsonResponse.media_type)


async def docs(call: HandlerCall) -> Response:
    """Respond with the documentation page."""
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
    return HTMLResponse(_rendered_once(call.server, "docs", lambda api: page(api).encode()), headers=headers)


def _rendered_once(server: ServerState, name: str, render: Callable[[dict[str, Any]], bytes | memoryview]) -> bytes:
    """Return a page of the API; it is rendered for the first request only, since these routes need no key."""
    if name not in server.pages:
        server.pages[name] = bytes(render(whole_document(server)))
    return server.pages[name]


def whole_document(server: ServerState) -> dict[str, Any]:
    """Return the OpenAPI document of Ocean's own routes and those of its clogs."""
    own, clogs = cached_document(server.table), server.clog_openapi
    schemas = own["components"]["schemas"] | clogs.get("schemas", {})
    return own | {"paths": own["paths"] | clogs.get("paths", {}), "components": {"schemas": schemas}}


def page(api: dict[str, Any]) -> str:
    """Return an OpenAPI document as HTML."""
    about = escape(api["info"]["description"])
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Ocean: the HTTP API</title></head>'
    parts = [head, f"<body><h1>Ocean: the HTTP API</h1><p>{about} Also as <a href='openapi.json'>OpenAPI</a>.</p>"]
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            parts.extend(_operation(f"{method.upper()} {path}", operation))
    parts.append("<h1>Schemas</h1>")
    for name, schema in api["components"]["schemas"].items():
        parts.extend(_schema(name, schema))
    return "\n".join([*parts, "</body></html>\n"])


def _operation(title: str, operation: dict[str, Any]) -> Iterator[str]:
    scope = operation["x-ocean-scope"]
    yield f"<h2><code>{escape(title)}</code></h2><p>{escape(operation['summary'])}. Scope: {escape(scope)}.</p><ul>"
    for parameter in operation["parameters"]:
        where, kind = parameter["in"], _type(parameter["schema"])
        yield f"<li><code>{escape(parameter['name'])}</code> in the {escape(where)}: {kind}</li>"
    if "requestBody" in operation:
        yield f"<li>body: {_content(operation['requestBody'])}</li>"
    for status, response in operation["responses"].items():
        yield f"<li>{escape(status)}: {_content(response)}</li>"
    yield "</ul>"


def _content(holder: dict[str, Any]) -> str:
    content = holder["content"].get("application/json")
    return _type(content["schema"]) if content else escape(holder["description"])


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"<h2 id='{escape(name)}'>{escape(name)}</h2><p>{escape(schema.get('description', ''))}</p><ul>"
    required = schema.get("required", ())
    for field, kind in schema.get("properties", {}).items():
        yield f"<li><code>{escape(field)}</code>{'' if field in required else ' (optional)'}: {_type(kind)}</li>"
    if "enum" in schema:
        yield f"<li>{escape(', '.join(map(str, schema['enum'])))}</li>"
    yield "</ul>"


def _type(schema: Any) -> str:
    """Return a short name for a schema, with a link if it has a name of its own."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    shapes = schema.get("anyOf") or schema.get("oneOf")
    if shapes:
        return " or ".join(map(_type, shapes))
    if "enum" in schema:
        return escape(" or ".join(map(str, schema["enum"])))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("const", schema.get("type", "any JSON"))))
