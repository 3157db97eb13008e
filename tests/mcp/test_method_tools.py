"""Methods as tools: their names and the schemas of their payloads."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel

from ocean import Clog, Tick
from ocean.mcp.schemas import schemas
from ocean.mcp.tools import method_tools


class Item(BaseModel):
    name: str


class Cart(BaseModel):
    items: list[Item]


def with_method(clog_id: str, name: str, hint: object = Any) -> Clog:
    clog = Clog(clog_id)

    async def method(tick: Tick, payload: object) -> None:
        return None

    method.__name__ = name
    method.__annotations__["payload"] = hint
    clog.method(method)
    return clog


def test_a_payload_of_models_is_described_whole() -> None:
    (tool,) = method_tools([with_method("shop", "buy", Cart)])
    schema = schemas().input_of(tool)
    jsonschema.validate({"payload": {"items": [{"name": "a book"}]}}, schema)
    assert not jsonschema.Draft202012Validator(schema).is_valid({"payload": {"items": [{"nam": 1}]}})


@pytest.mark.parametrize("hint", [Any, object(), "Nowhere", print])
def test_a_payload_without_annotation_may_be_anything(hint: object) -> None:
    (tool,) = method_tools([with_method("shop", "buy", hint)])
    jsonschema.validate({"payload": ["anything"]}, schemas().input_of(tool))


def test_a_method_with_an_invalid_or_ambiguous_name_is_not_a_tool() -> None:
    clogs = [
        with_method("a", "b__c"),
        with_method("a__b", "c"),
        with_method("dotted.name", "m"),
        with_method("x" * 60, "long"),
        with_method("fine", "m"),
    ]
    assert [tool.name for tool in method_tools(clogs)] == ["fine__m"]
