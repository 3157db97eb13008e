"""The SDK's server: lists what the sender's key is for, and hands every call to the application."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from ocean.http.framework.authorization import identified
from ocean.http.framework.errors import envelope
from ocean.mcp.in_process import Asked, Insider, Said, Sender
from ocean.mcp.method_tools import method_tools
from ocean.mcp.resources import TEMPLATES, listed, meant, page
from ocean.mcp.schemas import schemas
from ocean.mcp.tools import TOOLS, Tool
from ocean.state.access import Access
from ocean.state.errors import OceanError, RunNotFound, near_name
from ocean.state.ids import IdSource

if TYPE_CHECKING:
    from ocean.compose import Ocean

ABOUT = (
    "Ocean keeps durable runs. A run belongs to a clog, is moved on one tick at a time, and waits in between. Create "
    "one with create_run, give it inputs with signal_run, and when it does not move ask explain_run. Times are "
    "milliseconds since 1970."
)
Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True)
class Agents:
    """`own` is who asks where the transport does not say: the process at the other end of our pipes."""

    ocean: "Ocean"
    inside: Insider
    own: Sender
    _ids: IdSource = field(default_factory=IdSource)

    @cached_property
    def tools(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in (*TOOLS, *method_tools(self.ocean.clogs))}

    @cached_property
    def described(self) -> dict[str, types.Tool]:
        return {name: _described(tool) for name, tool in self.tools.items()}

    def server(self) -> Server[Any]:
        return Server(
            "ocean",
            version=_version(),
            instructions=ABOUT,
            get_tool_input_schema=self._schema_of,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )

    def _sender(self, context: Context) -> Sender:
        return self.own if context.request is None else Sender.of(context.request)

    async def _access(self, context: Context) -> Access:
        try:
            return await identified(self.inside.app.state.served, self._sender(context).request())
        except OceanError as error:
            raise _protocol_error(error.code, error.message) from None

    def _schema_of(self, name: str) -> Mapping[str, Any] | None:
        found = self.described.get(name)
        return None if found is None else found.input_schema

    async def _list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        access = await self._access(context)
        shown = [self.described[name] for name, tool in self.tools.items() if _may(access, tool)]
        return types.ListToolsResult(tools=shown)

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = self.tools.get(params.name)
        if tool is None:
            hint = near_name(params.name, self.tools)
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}; {hint}")
        arguments = params.arguments or {}
        try:
            asked = tool.asked(arguments)
            await self._check_clog(context, tool, arguments)
            said = await self.inside.ask(self._sender(context), asked)
        except OceanError as error:
            said = Said(error.http_status, envelope(error, self._ids.new(self.ocean.clock.now())))
        return types.CallToolResult(
            content=[types.TextContent(text=_text(said.body))],
            structured_content=said.body,
            is_error=said.is_refusal,
        )

    async def _check_clog(self, context: Context, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """A method's tool is for runs of its clog. Others' are not there for it, as another session's are not."""
        run_id, clog_id = arguments.get("runId"), tool.fixed.get("clogId")
        if clog_id is None or run_id is None or not _may(await self._access(context), tool):
            return
        standing = await self.ocean.standing(run_id)
        if standing is not None and standing.clog_id != clog_id:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        if not (await self._access(context)).may("read"):
            return types.ListResourcesResult(resources=[])
        return listed(await self._read(context, page(params.cursor if params else None)))

    async def _list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[*TEMPLATES])

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        asked = meant(params.uri)
        if asked is None:
            templates = ", ".join(each.uri_template for each in TEMPLATES)
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {params.uri!r}; there are {templates}")
        text = _text(await self._read(context, asked))
        contents = types.TextResourceContents(uri=params.uri, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _read(self, context: Context, asked: Asked) -> Any:
        said = await self.inside.ask(self._sender(context), asked)
        if said.is_refusal:
            error = said.body["error"]
            raise _protocol_error(error["code"], error["message"])
        return said.body


def _may(access: Access, tool: Tool) -> bool:
    scope = tool.scope
    return scope == "any" or scope == "open" or access.may(scope)


def _protocol_error(code: str, message: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, message, {"code": code})


def _described(tool: Tool) -> types.Tool:
    is_method = bool(tool.fixed) or tool.name == "call_method"
    return types.Tool(
        name=tool.name,
        description=tool.about,
        input_schema=schemas().takes(tool),
        output_schema=schemas().answers(tool),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.is_reading,
            destructive_hint=None if is_method else tool.name == "cancel_run",
            open_world_hint=None if is_method else False,
        ),
    )


def _text(body: Any) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _version() -> str:
    try:
        return metadata.version("ocean-runtime")
    except metadata.PackageNotFoundError:
        return ""
