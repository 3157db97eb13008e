"""Tools from functions: names, parameters, schemas in the formats of model APIs, and every refusal."""

import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from ocean import Clog, CredentialRef, InvalidValue, Tool, ToolBox, ToolCall, UnknownTool, tool
from ocean.testing import world
from ocean.tools.builtin import TOOLS
from ocean.tools.registry import Toolset, denied_tools, described, plain_name, wire_name

API_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

weather = ToolBox("weather")


@weather.tool(effect="none")
async def lookup(
    city: Annotated[str, Field(min_length=1, description="Where.")], units: Literal["c", "f"] = "c"
) -> dict[str, Any]:
    """The weather in a city.

    As it is now.
    """
    return {"city": city, "units": units}


class Report(BaseModel):
    city: str
    at: datetime


@weather.tool(dangerous=True, timeout_ms=5_000, credentials=["bureau"])
def report(ask: Report, call: ToolCall) -> str:
    """Report the weather."""
    return ask.city


def spec(made: Tool) -> Any:
    return next(each for each in Toolset([made]).specs() if each.name == made.name)


def test_a_function_becomes_a_tool_with_its_docstring_and_parameters() -> None:
    assert (lookup.name, lookup.description) == ("weather.lookup", "The weather in a city.\n\nAs it is now.")
    schema = json.loads(json.dumps(spec(lookup).json_schema()))
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["city"]["description"] == "Where."
    assert schema["properties"]["units"]["enum"] == ["c", "f"]
    assert (lookup.effect, report.effect, report.dangerous, report.timeout_ms) == ("none", "outside", True, 5_000)


def test_one_parameter_that_is_a_model_is_the_whole_input() -> None:
    assert sorted(spec(report).json_schema()["properties"]) == ["at", "city"]
    assert report.input is Report


async def test_the_function_itself_can_be_called() -> None:
    assert report(Report(city="Oslo", at=datetime(2026, 1, 1, tzinfo=UTC)), None) == "Oslo"


def test_parameters_may_have_the_names_of_model_methods() -> None:
    @tool
    def store(json: str, copy: int, schema: bool = True, model_fields: str = "") -> None:
        """Keep it."""

    assert sorted(spec(store).json_schema()["properties"]) == ["copy", "json", "model_fields", "schema"]


def test_a_reference_is_a_name_in_the_schema() -> None:
    @tool
    def send(key: CredentialRef, others: list[CredentialRef]) -> None:
        """Send it."""

    key = spec(send).json_schema()["properties"]["key"]
    assert (key["type"], key["pattern"]) == ("string", "^[A-Za-z][A-Za-z0-9_.-]{0,63}$")


@pytest.mark.parametrize("name", ["weather.lookup", "a", "a-b.c_d.e1", "x" * 64, "a" * 31 + "." + "b" * 31, *TOOLS])
def test_a_name_is_valid_for_model_apis_and_can_be_recovered(name: str) -> None:
    assert API_NAME.fullmatch(wire_name(name))
    assert plain_name(wire_name(name)) == name


@pytest.mark.parametrize(
    "name",
    ["", "a b", "a__b", "_a", "a_", "a._b", "a_.b", "a..b", ".a", "a.", "1a", "ä", "x" * 65, "a" * 32 + "." + "b" * 31],
)
def test_a_name_that_no_api_would_accept_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match=r"a tool's name must be like 'weather\.lookup'|tools of functions"):
        tool(name=name or " ")(lookup.fn)


@pytest.mark.parametrize("name", ["ocean", "ocean.mine"])
def test_names_of_built_in_tools_are_reserved(name: str) -> None:
    with pytest.raises(InvalidValue, match="must not begin with 'ocean'"):
        tool(name=name)(lookup.fn)


def silent(city: str) -> None: ...


def untyped(city) -> None:  # type: ignore[no-untyped-def]
    """Does it."""


def catching(*cities: str) -> None:
    """Does it."""


def unnamed(city: str, /) -> None:
    """Does it."""


def odd(city: object, thing: re.Pattern[bytes], other: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Does it."""


class Strange:
    pass


def strange(thing: Strange) -> None:
    """Does it."""


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no description": (silent, {}, "must have a docstring or description="),
    "no type": (untyped, {}, "parameter 'city' must have a type, as city: str"),
    "any number": (catching, {}, "parameter 'cities' must be passed by name"),
    "no names": (unnamed, {}, "parameter 'city' must be passed by name"),
    "types that do not exist": (odd, {}, "the types of its parameters cannot be resolved: name 'Missing'"),
    "types that pydantic does not know": (strange, {}, "pydantic cannot check its parameters"),
    "an unknown effect": (lookup.fn, {"effect": "inside"}, "effect of tool 'lookup'"),
    "dangerous without effect": (lookup.fn, {"effect": "none", "dangerous": True}, "needs no approval"),
    "no time": (lookup.fn, {"timeout_ms": 0}, "timeout_ms of tool 'lookup' must be an integer from 1"),
    "credentials as a text": (lookup.fn, {"credentials": "mail"}, "credentials of tool 'lookup' must be a list"),
    "a tool of a tool": (lookup, {}, "@tool needs a function"),
}


@pytest.mark.parametrize(("fn", "options", "message"), WRONG.values(), ids=WRONG)
def test_a_function_that_cannot_become_a_tool_is_refused(fn: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(message)):
        tool(**options)(fn)


def test_the_forms_of_model_apis() -> None:
    schema = spec(lookup).json_schema()
    fields = {"name": "weather__lookup", "description": lookup.description}
    assert described(spec(lookup), "openai") == {"type": "function", "function": fields | {"parameters": schema}}
    assert described(spec(lookup), "anthropic") == fields | {"input_schema": schema}
    with pytest.raises(InvalidValue, match="format must be 'openai' or 'anthropic'"):
        described(spec(lookup), "gemini")  # type: ignore[arg-type]


def test_names_are_unique_in_a_box_and_in_an_instance() -> None:
    with pytest.raises(InvalidValue, match=r"tool box 'weather' has a tool 'weather.lookup' already"):
        weather.tool(lookup.fn)
    other = tool(name="weather.lookup")(lookup.fn)
    with pytest.raises(
        InvalidValue, match=r"tool names must be unique within an instance, got 'weather\.lookup' twice"
    ):
        Toolset([weather, other])
    assert list(Toolset([weather, lookup]).own) == ["weather.lookup", "weather.report"]


@pytest.mark.parametrize("wrong", ["weather.lookup", lookup, 7, [lookup.fn]])
def test_an_invalid_list_of_tools_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match=r"tools must be a list of tools|each of tools must be made by @tool"):
        Toolset(wrong)


async def test_a_clog_lists_tools_that_the_instance_has() -> None:
    async with world([Clog("c", toolbox=["weather.lookup"])], tools=[weather]) as w:
        assert [each.name for each in w.ocean.list_tools("c")][-1] == "weather.lookup"
        assert "weather.report" not in [each.name for each in w.ocean.list_tools("c")]
        assert [each.name for each in w.ocean.list_tools()] == [*TOOLS, "weather.lookup", "weather.report"]
        names = [each["function"]["name"] for each in w.ocean.tool_schemas(clog_id="c")]
        assert "weather__lookup" in names
        assert all(API_NAME.fullmatch(name) for name in names)
    with pytest.raises(
        UnknownTool, match=r"clog 'c' lists an unknown tool 'weather\.look'; did you mean 'weather\.lookup'"
    ):
        async with world([Clog("c", toolbox=["weather.look"])], tools=[weather]):
            pass


async def test_a_list_is_exact_and_a_box_adds_to_it() -> None:
    async with world([Clog("c", tools=["ocean.events.emit"], toolbox=weather)]) as w:
        assert [each.name for each in w.ocean.list_tools("c")] == [
            "ocean.events.emit",
            "weather.lookup",
            "weather.report",
        ]


def test_patterns_deny_and_are_named() -> None:
    denying = Toolset([weather], ["weather.*", "ocean.http.fetch"])
    assert denying.denied == {
        "weather.lookup": "weather.*",
        "weather.report": "weather.*",
        "ocean.http.fetch": "ocean.http.fetch",
    }
    assert {each.name: each.denied for each in denying.specs() if each.denied} == denying.denied
    assert Toolset([weather], ["mail.*"]).denied == {}, "another instance may have it"
    with pytest.raises(UnknownTool, match=r"unknown tool 'ocean\.http\.fetc'; did you mean 'ocean\.http\.fetch'"):
        Toolset((), ["ocean.http.fetc"])


def test_the_environment_only_adds_to_what_is_denied() -> None:
    assert denied_tools(["mail.send"], {"OCEAN_TOOLS_DENY": " weather.* ,, ocean.http.fetch "}) == (
        "mail.send",
        "weather.*",
        "ocean.http.fetch",
    )
    assert denied_tools((), {}) == ()


pytestmark = pytest.mark.anyio
