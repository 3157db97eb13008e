"""What a tool takes and answers, as JSON Schema: taken out of the OpenAPI document of its routes."""

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from ocean.http.framework.openapi import PARAMETER, document
from ocean.http.framework.operation import Op
from ocean.http.framework.wire import camel
from ocean.http.routes import TABLE
from ocean.mcp.tools import REQUEST_KEY, Tool, is_keyed, places_of

COMPONENT = "#/components/schemas/"
KEY = {
    "type": "string",
    "minLength": 1,
    "maxLength": 256,
    "description": "The same key with the same arguments again gets the first answer, and does nothing twice.",
}
ATTRIBUTE: dict[str, Any] = {"type": ["string", "number", "boolean"]}
ATTRIBUTES = {
    "type": "object",
    "description": "By name: a value, a list of which any is meant, or for one of them a range. Needs clogId.",
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
    """Of some size: `schemas()` makes them once."""

    def __init__(self) -> None:
        said = document(TABLE)
        self._paths = said["paths"]
        self._components = said["components"]["schemas"]

    def takes(self, tool: Tool) -> dict[str, Any]:
        """An object with all that any of its routes takes. What every one of them needs is required."""
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

    def answers(self, tool: Tool) -> dict[str, Any]:
        """Any of what its routes answer, which is always an object."""
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
        return places_of(op) | {*self._body(op).get("required", ())}

    def _body(self, op: Op) -> dict[str, Any]:
        body = self._operation(op).get("requestBody")
        if body is None:
            return {}
        schema: dict[str, Any] = body["content"]["application/json"]["schema"]
        found: dict[str, Any] = self._components[_name(schema["$ref"])] if "$ref" in schema else schema
        return found

    def _whole(self, schema: dict[str, Any], more: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """With all that it refers to inside it; `more` is what the document does not know."""
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
    return Schemas()


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """What is left out is not null: a run without an input waits for one."""
    return {name: value for name, value in schema.items() if (name, value) != ("default", None)}


def _name(reference: str) -> str:
    return reference.removeprefix(COMPONENT)


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
