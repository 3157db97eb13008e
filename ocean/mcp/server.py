"""The MCP server: lists the tools and resources that a key allows, and passes every call to the HTTP application.

Runs are resources: the newest are listed, and any can be read by its URI.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from ocean.http.framework.authorization import authenticate
from ocean.http.framework.errors import envelope
from ocean.mcp.in_process import AppClient, AppRequest, AppResponse, Sender
from ocean.mcp.schemas import schemas
from ocean.mcp.tools import TOOLS, McpTool, method_tools
from ocean.state.errors import OceanError, RunNotFound, near_name
from ocean.state.ids import IdSource
from ocean.state.records import Access

if TYPE_CHECKING:
    from ocean.compose import Ocean

ABOUT = (
    "Ocean keeps durable runs. A run belongs to a clog, advances one tick at a time, and waits in between. Create one "
    "with create_run, send inputs to it with signal_run, and use explain_run when it does not advance. Times are "
    "milliseconds since 1970."
)
RUNS = "ocean://runs/"
JSON = "application/json"
RESOURCE_PAGE = 50
PARTS = {"": "", "events": "/events", "explain": "/explain"}
"""The parts of a run that are resources, and the ends of their routes."""

TEMPLATES = (
    types.ResourceTemplate(name="run", uri_template=f"{RUNS}{{runId}}", description="A run.", mime_type=JSON),
    types.ResourceTemplate(
        name="events",
        uri_template=f"{RUNS}{{runId}}/events",
        description="The first events of a run; continue with read_events.",
        mime_type=JSON,
    ),
    types.ResourceTemplate(
        name="explain",
        uri_template=f"{RUNS}{{runId}}/explain",
        description="Why a run is not advancing.",
        mime_type=JSON,
    ),
)

Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True)
class McpServer:
    """Serves MCP for one application. `own` is the sender where the transport has none: the process at the pipes."""

    ocean: "Ocean"
    client: AppClient
    own: Sender
    _ids: IdSource = field(default_factory=IdSource)

    @cached_property
    def tools(self) -> dict[str, McpTool]:
        """All tools by name."""
        return {tool.name: tool for tool in (*TOOLS, *method_tools(self.ocean.clogs))}

    @cached_property
    def described(self) -> dict[str, types.Tool]:
        """All tools by name, as MCP describes them."""
        return {name: _described(tool) for name, tool in self.tools.items()}

    def server(self) -> Server[Any]:
        """Return the SDK's server."""
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
            return await authenticate(self.client.app.state.server, self._sender(context).request())
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
            request = tool.request(arguments)
            await self._check_clog(context, tool, arguments)
            response = await self.client.send(self._sender(context), request)
        except OceanError as error:
            response = AppResponse(error.http_status, envelope(error, self._ids.new(self.ocean.clock.now())))
        return types.CallToolResult(
            content=[types.TextContent(text=_text(response.body))],
            structured_content=response.body,
            is_error=response.is_error,
        )

    async def _check_clog(self, context: Context, tool: McpTool, arguments: Mapping[str, Any]) -> None:
        """Refuse a run of another clog for the tool of a method, in the same way as a run that does not exist."""
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
        return _resources(await self._read(context, _page_request(params.cursor if params else None)))

    async def _list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[*TEMPLATES])

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        request = _resource_request(params.uri)
        if request is None:
            templates = ", ".join(each.uri_template for each in TEMPLATES)
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {params.uri!r}; there are {templates}")
        text = _text(await self._read(context, request))
        contents = types.TextResourceContents(uri=params.uri, mime_type=JSON, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _read(self, context: Context, request: AppRequest) -> Any:
        response = await self.client.send(self._sender(context), request)
        if response.is_error:
            error = response.body["error"]
            raise _protocol_error(error["code"], error["message"])
        return response.body


def _may(access: Access, tool: McpTool) -> bool:
    scope = tool.scope
    return scope == "any" or scope == "open" or access.may(scope)


def _protocol_error(code: str, message: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, message, {"code": code})


def _described(tool: McpTool) -> types.Tool:
    is_method = bool(tool.fixed) or tool.name == "call_method"
    return types.Tool(
        name=tool.name,
        description=tool.about,
        input_schema=schemas().input_of(tool),
        output_schema=schemas().output_of(tool),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.is_read_only,
            destructive_hint=None if is_method else tool.name == "cancel_run",
            open_world_hint=None if is_method else False,
        ),
    )


def _resource_request(uri: str) -> AppRequest | None:
    """Return the request that reads a resource, or None if there is no such resource."""
    if not uri.startswith(RUNS):
        return None
    run_id, _, part = uri.removeprefix(RUNS).partition("/")
    if not run_id or part not in PARTS:
        return None
    return AppRequest("GET", f"/v1/runs/{quote(unquote(run_id), safe='')}{PARTS[part]}")


def _page_request(cursor: str | None) -> AppRequest:
    more = () if cursor is None else (("cursor", cursor),)
    return AppRequest("GET", "/v1/runs", (("limit", str(RESOURCE_PAGE)), *more))


def _resources(page: Any) -> types.ListResourcesResult:
    resources = [
        types.Resource(
            name=run["runId"],
            uri=f"{RUNS}{quote(run['runId'], safe='')}",
            description=f"{run['status']}, of clog {run['clogId']} in session {run['sessionId']}",
            mime_type=JSON,
        )
        for run in page["runs"]
    ]
    return types.ListResourcesResult(resources=resources, next_cursor=page["nextCursor"])


def _text(body: Any) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _version() -> str:
    try:
        return metadata.version("ocean-runtime")
    except metadata.PackageNotFoundError:
        return ""
