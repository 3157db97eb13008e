"""The JSON Schemas of what a tool takes and returns, from the OpenAPI document of its routes."""

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from ocean.http.framework.responses import camel
from ocean.http.framework.routing import Op
from ocean.http.openapi import PARAMETER, SCHEMAS, document
from ocean.http.routes import TABLE
from ocean.mcp.tools import REQUEST_KEY, McpTool, is_keyed, path_parameters

KEY = {
    "type": "string",
    "minLength": 1,
    "maxLength": 256,
    "description": "A repeated call with the same key and arguments returns the first result and does nothing twice.",
}
ATTRIBUTE: dict[str, Any] = {"type": ["string", "number", "boolean"]}
ATTRIBUTES = {
    "type": "object",
    "description": "By name: a value, a list to match any of, or for one attribute a range. Needs clogId.",
    "additionalProperties": {
        "anyOf": [
            ATTRIBUTE,
            {"type": "array", "items": ATTRIBUTE},
            {
                "type": "object",
                "properties": dict.fromkeys(("gt", "gte", "lt", "lte"), ATTRIBUTE),
                "additionalProperties": False,
            },
        ]
    },
}


class Schemas:
    """The schemas of all tools. They are large, so `schemas()` builds them once."""

    def __init__(self) -> None:
        api = document(TABLE)
        self._paths = api["paths"]
        self._components = api["components"]["schemas"]

    def input_of(self, tool: McpTool) -> dict[str, Any]:
        """Return an object with everything that any of a tool's routes takes; required is what all of them need."""
        properties: dict[str, Any] = {}
        for op in tool.ops:
            for name, schema in self._properties(op):
                properties.setdefault(name, schema)
        for name, value in tool.defaults.items():
            properties[name] = properties[name] | {"default": value}
        more: dict[str, Any] = {}
        if tool.payload is not None:
            more = tool.payload.get("$defs", {})
            properties["payload"] = {name: value for name, value in tool.payload.items() if name != "$defs"}
        properties = {name: _optional(schema) for name, schema in properties.items() if name not in tool.fixed}
        needed = [self._needed(op) for op in tool.ops]
        required = sorted(set.intersection(*needed).difference(tool.fixed))
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return self._whole(schema, more)

    def output_of(self, tool: McpTool) -> dict[str, Any]:
        """Return the union of what a tool's routes return; this is always an object."""
        shapes: list[Any] = []
        for op in tool.ops:
            for status, response in self._operation(op)["responses"].items():
                shape = response["content"]["application/json"]["schema"]
                if status != "default" and shape not in shapes:
                    shapes.append(shape)
        return self._whole({"type": "object", "anyOf": shapes})

    def _operation(self, op: Op) -> Any:
        path = PARAMETER.sub(lambda match: f"{{{camel(match[1])}}}", op.path)
        return self._paths[path][op.method.lower()]

    def _properties(self, op: Op) -> Iterator[tuple[str, Any]]:
        for parameter in self._operation(op)["parameters"]:
            if parameter["name"] == "attr.NAME":
                yield "attributes", ATTRIBUTES
            elif parameter["in"] != "header":
                yield parameter["name"], parameter["schema"]
        yield from self._body(op).get("properties", {}).items()
        if is_keyed(op):
            yield REQUEST_KEY, KEY

    def _needed(self, op: Op) -> set[str]:
        return path_parameters(op) | {*self._body(op).get("required", ())}

    def _body(self, op: Op) -> dict[str, Any]:
        body = self._operation(op).get("requestBody")
        if body is None:
            return {}
        schema: dict[str, Any] = body["content"]["application/json"]["schema"]
        found: dict[str, Any] = self._components[_name(schema["$ref"])] if "$ref" in schema else schema
        return found

    def _whole(self, schema: dict[str, Any], more: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """Return a schema with everything that it refers to; `more` is what the document does not have."""
        known = {**self._components, **more}
        found: dict[str, Any] = {}
        open_names = {*_references(schema)}
        while open_names:
            name = open_names.pop()
            found[name] = known[name]
            open_names |= {each for each in _references(found[name]) if each not in found}
        whole: dict[str, Any] = _respelled(schema)
        return whole | {"$defs": {name: _respelled(found[name]) for name in sorted(found)}} if found else whole


@cache
def schemas() -> Schemas:
    """Return the schemas, built on the first call."""
    return Schemas()


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without a null default: a missing value is not null, a run without an input waits for one."""
    return {name: value for name, value in schema.items() if (name, value) != ("default", None)}


def _name(reference: str) -> str:
    return reference.removeprefix(SCHEMAS)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield _name(schema["$ref"])
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _respelled(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            name: f"#/$defs/{_name(value)}" if name == "$ref" else _respelled(value) for name, value in schema.items()
        }
    return [_respelled(each) for each in schema] if isinstance(schema, list) else schema
