"""The paths of the contract. A handler reads its request, calls one verb of `Loop`, and builds the response."""

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from clogs.loop.errors import REQUEST_ID, refused, request_id_of
from clogs.loop.schemas import (
    EVENTS_V1,
    ISSUES_V1,
    RUNS_V1,
    ChangedFacts,
    EmptyRequest,
    EventListQuery,
    IssueListQuery,
    IssueShown,
    NewIssue,
    RunListQuery,
    RunNextStep,
)
from clogs.loop.views import step_of
from ocean import Incoming, Reply

if TYPE_CHECKING:
    from clogs.loop.api import Loop

ISSUE = "/api/loop/issues/{issueId}"
RUN = "/api/loop/runs/{runId}"
VERSION = re.compile(r'([0-9]{1,15})|"([0-9]{1,15})"')
SUB_HEADER = "x-afu9-sub"
SUB_ROLE = "sub:"
"""A key with the role `sub:ann` may act for ann, one with `sub:*` for every actor."""
MOST_NAME_CHARS = 256


def mount(loop: "Loop") -> None:
    _mount_issues(loop)
    _mount_changes(loop)
    _mount_runs(loop)


def _mount_issues(loop: "Loop") -> None:
    route = loop.issues.route
    reads: Any = {"access": "read", "session": "checked", "check": actor_of}

    @route("POST", ISSUE + "/run-next-step", access="signal", session="checked", check=actor_of, body=RunNextStep,
           keyed="own", summary="Execute the next step of an issue's loop")  # fmt: skip
    async def run_next_step(incoming: Incoming) -> Reply:
        answer = await loop.run_next_step(
            incoming.ocean,
            incoming.path["issueId"],
            mode=incoming.body.mode,
            actor=actor_of(incoming),
            request_id=request_id_of(incoming),
            idempotency_key=incoming.request_key,
            if_match=_if_match(incoming),
            projects=incoming.access.sessions,
        )
        return Reply(answer.wire(), 200, {REQUEST_ID: answer.request_id})

    @route("POST", "/api/loop/issues", access="signal", session="checked", check=actor_of, body=NewIssue,
           keyed=True, summary="Create an issue")  # fmt: skip
    async def create_issue(incoming: Incoming) -> Reply:
        body: NewIssue = incoming.body
        if not incoming.access.sees(body.project):
            raise refused("ISSUE_NOT_FOUND", f"there is no project {body.project!r} that this key may use")
        made = await loop.create_issue(
            incoming.ocean,
            body.title,
            actor=actor_of(incoming),
            issue_id=body.issueId,
            project=body.project,
            plan=body.plan,
            facts=body.facts,
            request_key=incoming.request_key,
        )
        return _issue_reply(incoming, made, 201)

    @route("GET", "/api/loop/issues", query=IssueListQuery, summary="List issues, newest first", **reads)
    async def list_issues(incoming: Incoming) -> Reply:
        query: IssueListQuery = incoming.query
        found, cursor = await loop.list_issues(
            incoming.ocean,
            project=query.project,
            state=query.state,
            limit=query.limit,
            cursor=query.cursor,
            projects=incoming.access.sessions,
        )
        return _reply(incoming, ISSUES_V1, {"issues": [each.wire() for each in found], "nextCursor": cursor})

    @route("GET", ISSUE, summary="An issue; its version is the ETag", **reads)
    async def get_issue(incoming: Incoming) -> Reply:
        projects = incoming.access.sessions
        return _issue_reply(incoming, await loop.get_issue(incoming.ocean, incoming.path["issueId"], projects=projects))


def _mount_changes(loop: "Loop") -> None:
    route = loop.issues.route
    changes: Any = {"access": "signal", "session": "checked", "check": actor_of}

    @route("PATCH", ISSUE, body=ChangedFacts, summary="Report facts that gates read", **changes)
    async def note_facts(incoming: Incoming) -> Reply:
        changed = await loop.note_facts(
            incoming.ocean, incoming.path["issueId"], incoming.body.facts, **_change_options(incoming)
        )
        return _issue_reply(incoming, changed)

    @route("POST", ISSUE + "/resume", body=EmptyRequest, summary="Continue an issue that is on hold", **changes)
    async def resume(incoming: Incoming) -> Reply:
        return _issue_reply(
            incoming, await loop.resume(incoming.ocean, incoming.path["issueId"], **_change_options(incoming))
        )


def _mount_runs(loop: "Loop") -> None:
    route = loop.issues.route
    reads: Any = {"access": "read", "session": "checked", "check": actor_of}

    @route("GET", ISSUE + "/runs", query=RunListQuery, summary="The executions of an issue, newest first", **reads)
    async def list_runs(incoming: Incoming) -> Reply:
        query: RunListQuery = incoming.query
        found, cursor = await loop.list_runs(
            incoming.ocean,
            incoming.path["issueId"],
            limit=query.limit,
            cursor=query.cursor,
            projects=incoming.access.sessions,
        )
        return _reply(incoming, RUNS_V1, {"runs": [each.wire() for each in found], "nextCursor": cursor})

    @route("GET", ISSUE + "/events", query=EventListQuery, summary="The events of an issue, newest first", **reads)
    async def list_events(incoming: Incoming) -> Reply:
        query: EventListQuery = incoming.query
        found = await loop.list_events(
            incoming.ocean,
            incoming.path["issueId"],
            limit=query.limit,
            before=query.before,
            projects=incoming.access.sessions,
        )
        is_full = len(found) == query.limit
        before = found[-1].cursor if is_full else None
        return _reply(incoming, EVENTS_V1, {"events": [each.wire() for each in found], "nextBefore": before})

    @route("GET", RUN, summary="An execution", **reads)
    async def get_run(incoming: Incoming) -> Reply:
        run = await loop.get_run(incoming.ocean, incoming.path["runId"], projects=incoming.access.sessions)
        return _reply(incoming, RUNS_V1, {"run": run.wire()})

    @route("GET", RUN + "/steps", summary="The steps of an execution", **reads)
    async def list_steps(incoming: Incoming) -> Reply:
        run = await loop.get_run(incoming.ocean, incoming.path["runId"], projects=incoming.access.sessions)
        step = step_of(run)
        return _reply(incoming, RUNS_V1, {"runId": run.run_id, "steps": [] if step is None else [step.wire()]})


def _change_options(incoming: Incoming) -> dict[str, Any]:
    return {"actor": actor_of(incoming), "if_match": _if_match(incoming), "projects": incoming.access.sessions}


def _if_match(incoming: Incoming) -> int | None:
    given = incoming.headers.get("if-match")
    if given is None:
        return None
    match = VERSION.fullmatch(given.strip())
    if match is None:
        raise refused("INVALID_REQUEST", f"If-Match must be an issue's version, like 3, got {given!r}")
    return int(match[1] or match[2])


def _issue_reply(incoming: Incoming, issue: IssueShown, status: int = 200) -> Reply:
    headers = {"ETag": f'"{issue.version}"'}
    if status == 201:
        headers["Location"] = f"/api/loop/issues/{quote(issue.issue_id, safe='')}"
    return _reply(incoming, ISSUES_V1, {"issue": issue.wire()}, status, headers)


def _reply(
    incoming: Incoming, schema: str, content: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Reply:
    request_id = request_id_of(incoming)
    present = {name: value for name, value in content.items() if value is not None}
    body = {"schemaVersion": schema, "requestId": request_id} | present
    return Reply(body, status, {REQUEST_ID: request_id} | (headers or {}))


def actor_of(incoming: Incoming) -> str:
    """Return the actor: the key's, or the header's if the key may act for it. Without keys, the header is required."""
    named, own = incoming.headers.get(SUB_HEADER), incoming.access.actor
    if named is None and own is not None:
        return own
    if named is None or not named.strip() or len(named) > MOST_NAME_CHARS or not named.isprintable():
        raise refused(
            "UNAUTHORIZED", f"the header {SUB_HEADER} must name the actor: up to {MOST_NAME_CHARS} printable characters"
        )
    if own is not None and named != own and not {f"{SUB_ROLE}{named}", f"{SUB_ROLE}*"} & {*incoming.access.roles}:
        raise refused(
            "UNAUTHORIZED", f"this key may not act for the actor in {SUB_HEADER}; it must have the role {SUB_ROLE}NAME"
        )
    return named
