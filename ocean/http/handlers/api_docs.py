"""The API about itself: its OpenAPI document, and a page for people that needs no script."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from html import escape
from typing import Any

from starlette.responses import HTMLResponse, Response

from ocean.http.framework.call import Call, Served
from ocean.http.framework.openapi import document
from ocean.http.framework.wire import GUARDED, Answer

POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

made = lru_cache(maxsize=4)(document)


async def openapi_json(call: Call) -> Response:
    content = _once(call.served, "openapi.json", lambda said: Answer(said).body)
    return Response(content, headers=GUARDED, media_type=Answer.media_type)


async def docs(call: Call) -> Response:
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
    return HTMLResponse(_once(call.served, "docs", lambda said: page(said).encode()), headers=headers)


def _once(served: Served, name: str, render: Callable[[dict[str, Any]], bytes | memoryview]) -> bytes:
    """Anybody may ask, as often as they like: it is put into words the first time."""
    if name not in served.pages:
        served.pages[name] = bytes(render(said_of(served)))
    return served.pages[name]


def said_of(served: Served) -> dict[str, Any]:
    """The document of Ocean's own routes, and what its clogs have mounted beside them."""
    said = made(served.table)
    schemas = said["components"]["schemas"] | served.mounted.get("schemas", {})
    return said | {"paths": said["paths"] | served.mounted.get("paths", {}), "components": {"schemas": schemas}}


def page(said: dict[str, Any]) -> str:
    about = escape(said["info"]["description"])
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Ocean: the HTTP API</title></head>'
    parts = [head, f"<body><h1>Ocean: the HTTP API</h1><p>{about} Also as <a href='openapi.json'>OpenAPI</a>.</p>"]
    for path, methods in said["paths"].items():
        for method, operation in methods.items():
            parts.extend(_operation(f"{method.upper()} {path}", operation))
    parts.append("<h1>Shapes</h1>")
    for name, schema in said["components"]["schemas"].items():
        parts.extend(_shape(name, schema))
    return "\n".join([*parts, "</body></html>\n"])


def _operation(title: str, operation: dict[str, Any]) -> Iterator[str]:
    scope = operation["x-ocean-scope"]
    yield f"<h2><code>{escape(title)}</code></h2><p>{escape(operation['summary'])}. Scope: {escape(scope)}.</p><ul>"
    for parameter in operation["parameters"]:
        where, shape = parameter["in"], _words(parameter["schema"])
        yield f"<li><code>{escape(parameter['name'])}</code> in the {escape(where)}: {shape}</li>"
    if "requestBody" in operation:
        yield f"<li>body: {_content(operation['requestBody'])}</li>"
    for status, response in operation["responses"].items():
        yield f"<li>{escape(status)}: {_content(response)}</li>"
    yield "</ul>"


def _content(holder: dict[str, Any]) -> str:
    content = holder["content"].get("application/json")
    return _words(content["schema"]) if content else escape(holder["description"])


def _shape(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"<h2 id='{escape(name)}'>{escape(name)}</h2><p>{escape(schema.get('description', ''))}</p><ul>"
    required = schema.get("required", ())
    for field, shape in schema.get("properties", {}).items():
        yield f"<li><code>{escape(field)}</code>{'' if field in required else ' (optional)'}: {_words(shape)}</li>"
    if "enum" in schema:
        yield f"<li>{escape(', '.join(map(str, schema['enum'])))}</li>"
    yield "</ul>"


def _words(schema: Any) -> str:
    """A schema in a few words, with a link where it has a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    shapes = schema.get("anyOf") or schema.get("oneOf")
    if shapes:
        return " or ".join(map(_words, shapes))
    if "enum" in schema:
        return escape(" or ".join(map(str, schema["enum"])))
    if schema.get("type") == "array":
        return f"list of {_words(schema.get('items', {}))}"
    return escape(str(schema.get("const", schema.get("type", "any JSON"))))
