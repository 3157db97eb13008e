"""Runs as resources: the newest are listed, and any can be read by its address."""

from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types

from ocean.mcp.in_process import Asked

RUNS = "ocean://runs/"
JSON = "application/json"
PAGE = 50
PARTS = {"": "", "events": "/events", "explain": "/explain"}

TEMPLATES = (
    types.ResourceTemplate(name="run", uri_template=f"{RUNS}{{runId}}", description="A run.", mime_type=JSON),
    types.ResourceTemplate(
        name="events",
        uri_template=f"{RUNS}{{runId}}/events",
        description="The first events of a run; read_events goes on.",
        mime_type=JSON,
    ),
    types.ResourceTemplate(
        name="explain",
        uri_template=f"{RUNS}{{runId}}/explain",
        description="Why a run is not moving.",
        mime_type=JSON,
    ),
)


def meant(uri: str) -> Asked | None:
    """The request that reads it; None if it is no resource of ours."""
    if not uri.startswith(RUNS):
        return None
    run_id, _, part = uri.removeprefix(RUNS).partition("/")
    if not run_id or part not in PARTS:
        return None
    return Asked("GET", f"/v1/runs/{quote(unquote(run_id), safe='')}{PARTS[part]}")


def page(cursor: str | None) -> Asked:
    more = () if cursor is None else (("cursor", cursor),)
    return Asked("GET", "/v1/runs", (("limit", str(PAGE)), *more))


def listed(said: Any) -> types.ListResourcesResult:
    resources = [
        types.Resource(
            name=run["runId"],
            uri=f"{RUNS}{quote(run['runId'], safe='')}",
            description=f"{run['status']}, of clog {run['clogId']} in session {run['sessionId']}",
            mime_type=JSON,
        )
        for run in said["runs"]
    ]
    return types.ListResourcesResult(resources=resources, next_cursor=said["nextCursor"])
