"""The route table: every route of Ocean's own, who may use it, what it takes and what it answers."""

from ocean.http import creating, feeds, health, house, leases, many, metrics, pages, runs, session
from ocean.http.bodies import Body
from ocean.http.settling import Unsettled
from ocean.http.table import Op, Repeat
from ocean.kernel.bulk import BulkResult
from ocean.kernel.counters import Taken
from ocean.kernel.eligibility import Explanation
from ocean.kernel.leasing import WorkDone
from ocean.kernel.records import ClogRecord, KeyInfo, RunInfo, SignalReceipt
from ocean.kernel.values import MAX_BYTES

WIDE = 2 * MAX_BYTES
"""For bodies around one value, which itself may be as large as a value can be."""
SIGNALLED = SignalReceipt | Unsettled

RUNS = (
    Op(
        "POST",
        "/v1/runs",
        "signal",
        "Create a run: pending with an input, idle without",
        creating.create,
        {201: RunInfo, 200: RunInfo, 202: Unsettled},
        body=creating.CreateBody,
        query=runs.WaitQuery,
        repeat=Repeat.KEYED,
        pokes=True,
        most_bytes=WIDE,
        reach="asked",
    ),
    Op(
        "GET",
        "/v1/runs",
        "read",
        "Find runs",
        runs.list_runs,
        {200: runs.Runs},
        query=runs.RunsQuery,
        reach="asked",
    ),
    Op("GET", "/v1/runs/{run_id}", "read", "Look at a run", runs.get, {200: RunInfo}),
    Op(
        "DELETE",
        "/v1/runs/{run_id}",
        "admin",
        "Remove a run, its children and all their rows; events stay",
        runs.delete,
        {200: runs.Deleted},
        repeat=Repeat.KEYED,
        pokes=True,
        verb="delete",
    ),
    Op(
        "POST",
        "/v1/runs/{run_id}/signal",
        "signal",
        "Append an input to a run's inbox",
        runs.signal,
        {202: SIGNALLED, 200: RunInfo},
        body=runs.SignalBody,
        query=runs.WaitQuery,
        repeat=Repeat.KEYED,
        pokes=True,
        most_bytes=WIDE,
        verb="signal",
    ),
    Op(
        "POST",
        "/v1/runs/{run_id}/call/{method}",
        "signal",
        "Call a method of the run's clog",
        runs.call_method,
        {200: runs.Called},
        body=runs.CallBody,
        repeat=Repeat.KEYED,
        pokes=True,
        most_bytes=WIDE,
        verb="call",
    ),
    Op(
        "POST",
        "/v1/runs/{run_id}/cancel",
        "signal",
        "End a run as failed, code `cancelled`",
        runs.cancel,
        {200: RunInfo},
        body=runs.CancelBody,
        repeat=Repeat.KEYED,
        pokes=True,
        verb="cancel",
    ),
    Op(
        "POST",
        "/v1/runs/{run_id}/pause",
        "signal",
        "Hold a run back",
        runs.pause,
        {200: RunInfo},
        body=Body,
        repeat=Repeat.KEYED,
        verb="pause",
    ),
    Op(
        "POST",
        "/v1/runs/{run_id}/resume",
        "signal",
        "Let a paused run go on",
        runs.resume,
        {200: RunInfo},
        body=Body,
        repeat=Repeat.KEYED,
        pokes=True,
        verb="pause",
    ),
    Op(
        "POST",
        "/v1/runs/{run_id}/retry",
        "signal",
        "Begin a failed run anew, as another run",
        runs.retry,
        {201: RunInfo},
        body=Body,
        repeat=Repeat.KEYED,
        pokes=True,
        verb="retry",
    ),
    Op("GET", "/v1/runs/{run_id}/explain", "read", "Why a run is not moving", runs.explain, {200: Explanation}),
    Op("GET", "/v1/runs/{run_id}/ticks", "read", "A run's ticks", runs.ticks, {200: runs.Ticks}, query=runs.AfterQuery),
    Op(
        "GET",
        "/v1/runs/{run_id}/inputs",
        "read",
        "A run's inbox, delivered or not",
        runs.inputs,
        {200: runs.Inputs},
        query=runs.AfterQuery,
    ),
)

FEEDS = tuple(
    Op("GET", path, "read", summary, handler, {200: feeds.Events}, query=feeds.FeedQuery, is_streamed=True)
    for path, summary, handler in (
        ("/v1/runs/{run_id}/events", "A run's events", feeds.of_run),
        ("/v1/sessions/{session_id}/events", "A session's events", feeds.of_session),
        ("/v1/clogs/{clog_id}/events", "The events of a clog's runs", feeds.of_clog),
        ("/v1/events", "All events", feeds.of_all),
    )
)

MANY = tuple(
    Op(
        "POST",
        path,
        "admin",
        summary,
        handler,
        {200: BulkResult},
        body=body,
        repeat=Repeat.ITSELF,
        pokes=True,
        most_bytes=WIDE,
        reach="asked",
    )
    for path, summary, handler, body in (
        ("/v1/runs/cancel", "Cancel the runs that a query means", many.cancel, many.CancelManyBody),
        ("/v1/runs/signal", "Signal the runs that a query means", many.signal, many.SignalManyBody),
        ("/v1/runs/retry", "Begin the failed runs that a query means anew", many.retry, many.ManyBody),
        ("/v1/runs/delete", "Remove the runs that a query means", many.delete, many.ManyBody),
    )
)

LEASES = (
    Op(
        "POST",
        "/v1/leases",
        "work",
        "Lease due runs of an external clog",
        leases.claim,
        {200: leases.Leases},
        body=leases.ClaimBody,
        repeat=Repeat.NEVER,
    ),
    Op(
        "POST",
        "/v1/leases/{lease_id}/renew",
        "work",
        "Keep a lease, and say how far the work is",
        leases.renew,
        {200: leases.Renewed},
        body=leases.RenewBody,
        repeat=Repeat.NEVER,
    ),
    Op(
        "POST",
        "/v1/leases/{lease_id}/complete",
        "work",
        "Commit a leased tick",
        leases.complete,
        {200: WorkDone},
        body=leases.CompleteBody,
        repeat=Repeat.ITSELF,
        pokes=True,
        most_bytes=leases.COMPLETION_BYTES,
    ),
    Op(
        "POST",
        "/v1/leases/{lease_id}/release",
        "work",
        "Hand unfinished work back",
        leases.release,
        {200: leases.Released},
        body=Body,
        repeat=Repeat.NEVER,
        pokes=True,
    ),
)

HOUSE = (
    Op(
        "POST",
        "/v1/advance",
        "advance",
        "Do what is due",
        house.advance,
        {200: house.Advanced},
        body=house.AdvanceBody,
        repeat=Repeat.NEVER,
        reach="asked",
    ),
    Op(
        "DELETE",
        "/v1/sessions/{session_id}",
        "admin",
        "Remove a session with all its runs and rows",
        house.delete_session,
        {200: runs.Deleted},
        repeat=Repeat.KEYED,
        pokes=True,
    ),
    Op(
        "GET",
        "/v1/clogs",
        "read",
        "Every clog that an instance has registered",
        house.list_clogs,
        {200: house.Clogs},
        reach="none",
    ),
    Op(
        "POST",
        "/v1/clogs/{clog_id}/pause",
        "admin",
        "Hold back all runs of a clog",
        house.pause_clog,
        {200: ClogRecord},
        body=Body,
        repeat=Repeat.KEYED,
    ),
    Op(
        "POST",
        "/v1/clogs/{clog_id}/resume",
        "admin",
        "Let the runs of a paused clog go on",
        house.resume_clog,
        {200: ClogRecord},
        body=Body,
        repeat=Repeat.KEYED,
        pokes=True,
    ),
    Op(
        "POST",
        "/v1/clogs/{clog_id}/call/{method}",
        "signal",
        "Call a method of a clog, perhaps in a session",
        house.call_method,
        {200: runs.Called},
        body=house.ClogCallBody,
        repeat=Repeat.KEYED,
        pokes=True,
        most_bytes=WIDE,
        reach="asked",
    ),
    Op(
        "GET",
        "/v1/tools",
        "read",
        "The tools that clogs may use, with their schemas",
        house.list_tools,
        {200: house.Tools},
        reach="none",
    ),
    Op(
        "GET",
        "/v1/keys",
        "read",
        "The concurrency keys that are in use or have a limit",
        house.list_keys,
        {200: house.Keys},
        query=house.KeysQuery,
    ),
    Op("GET", "/v1/keys/{key:path}", "read", "Look at a concurrency key", house.get_key, {200: KeyInfo}),
    Op(
        "PUT",
        "/v1/keys/{key:path}",
        "admin",
        "Set how many runs may work under a concurrency key",
        house.set_limit,
        {200: KeyInfo},
        body=house.LimitBody,
        repeat=Repeat.KEYED,
        pokes=True,
    ),
    Op(
        "POST",
        "/v1/counters/{key:path}/take",
        "signal",
        "Take from a counter; only a take that was granted is kept for its Idempotency-Key",
        house.take,
        {200: Taken},
        body=house.TakeBody,
        repeat=Repeat.KEYED,
    ),
    Op(
        "DELETE",
        "/v1/counters/{key:path}",
        "admin",
        "Forget what was taken of a counter",
        house.reset_counter,
        {200: house.Reset},
        repeat=Repeat.KEYED,
    ),
)

SESSION = (
    Op(
        "POST",
        "/v1/session",
        "open",
        "Show a key and get a cookie, for a browser",
        session.begin,
        {201: session.Who},
        body=session.SessionBody,
        repeat=Repeat.NEVER,
        most_bytes=session.MOST_BYTES,
    ),
    Op("GET", "/v1/session", "any", "Who asks, and what they may do", session.who, {200: session.Who}, reach="none"),
    Op(
        "DELETE",
        "/v1/session",
        "any",
        "Give the cookie back",
        session.end,
        {200: session.Ended},
        repeat=Repeat.ITSELF,
        reach="none",
    ),
)

OPEN = (
    Op("GET", "/healthz", "open", "Whether this process answers", health.alive, {200: health.Health}),
    Op("GET", "/startupz", "open", "Whether the database is open", health.started, {200: health.Health}),
    Op("GET", "/readyz", "open", "Whether due work is done in time", health.ready, {200: health.Readiness}),
    Op("GET", "/openapi.json", "open", "This API as an OpenAPI document", pages.openapi_json, {200: dict}),
    Op("GET", "/docs", "open", "This API as a page", pages.docs, {200: "an HTML page"}),
)

METRICS = Op(
    "GET",
    "/metrics",
    "read",
    "What this process has seen and done, for Prometheus",
    metrics.show,
    {200: "numbers in the text format of Prometheus"},
    media_type="text/plain",
)

TABLE: tuple[Op, ...] = (*RUNS, *MANY, *FEEDS, *LEASES, *HOUSE, *SESSION, METRICS, *OPEN)
