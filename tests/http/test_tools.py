"""GET /v1/tools: built-in and own tools, in Ocean's format and in those of models' APIs."""

import re
from typing import Any

import pytest

from ocean import Clog, ToolBox
from ocean.testing import World, world

pytestmark = pytest.mark.anyio

box = ToolBox("weather")


@box.tool(effect="none")
async def lookup(city: str) -> str:
    """The weather in a city."""
    return f"fine in {city}"


@box.tool(dangerous=True)
async def change(city: str) -> None:
    """Change the weather."""


CLOG = Clog("c", tools=["ocean.events.emit"], toolbox=box)


async def get_tools(w: World, query: str, status: int = 200) -> Any:
    response = await w.request("GET", f"/v1/tools{query}")
    assert response.status == status, response.json()
    return response.json()


async def test_own_tools_are_listed_after_the_builtin_ones() -> None:
    async with world([CLOG], deny_tools=["weather.change"]) as w:
        tools = (await get_tools(w, ""))["tools"]
        flags = {each["name"]: (each["reachesOut"], each["dangerous"], each["denied"]) for each in tools}
        assert [each["name"] for each in tools][-2:] == ["weather.lookup", "weather.change"]
        assert flags["weather.lookup"] == (False, False, None)
        assert flags["weather.change"] == (True, True, "weather.change")
        assert flags["ocean.http.fetch"] == (True, False, None)


async def test_the_tools_of_a_clog_in_the_form_of_a_models_api() -> None:
    async with world([CLOG]) as w:
        openai = (await get_tools(w, "?format=openai&clogId=c"))["tools"]
        assert openai == w.ocean.tool_schemas("openai", clog_id="c")
        assert [each["function"]["name"] for each in openai] == [
            "ocean__events__emit",
            "weather__lookup",
            "weather__change",
        ]
        assert openai[1] == {
            "type": "function",
            "function": {
                "name": "weather__lookup",
                "description": "The weather in a city.",
                "parameters": {
                    "type": "object",
                    "title": "WeatherLookup",
                    "properties": {"city": {"title": "City", "type": "string"}},
                    "required": ["city"],
                    "additionalProperties": False,
                },
            },
        }
        anthropic = (await get_tools(w, "?format=anthropic&clogId=c"))["tools"]
        assert [sorted(each) for each in anthropic] == [["description", "input_schema", "name"]] * 3
        assert anthropic[1]["input_schema"] == openai[1]["function"]["parameters"]


async def test_every_name_is_accepted_by_the_apis_and_none_is_denied() -> None:
    async with world([CLOG], deny_tools=["weather.*"]) as w:
        names = [each["name"] for each in (await get_tools(w, "?format=anthropic"))["tools"]]
        assert len(names) > 10
        assert [name for name in names if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", name)] == []
        assert [name for name in names if "weather" in name] == []


async def test_a_wrong_form_and_an_unknown_clog_are_refused() -> None:
    async with world([CLOG]) as w:
        assert (await get_tools(w, "?format=gemini", 400))["error"]["code"] == "invalid_query"
        assert (await get_tools(w, "?clogId=d", 404))["error"]["code"] == "unknown_clog"
