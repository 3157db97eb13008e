"""`POST /v1/runs`: create a run, with all its options."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from starlette.responses import Response

from ocean.http.framework.call import HandlerCall
from ocean.http.framework.parsing import Body, Whole
from ocean.http.framework.responses import JsonResponse, record
from ocean.http.handlers.runs import WaitQuery
from ocean.http.handlers.wait_for_run import WhenSettled
from ocean.kernel.arguments import UNSET
from ocean.kernel.new_runs import DEFAULT_PRIORITY
from ocean.state.backoff import RetryPolicy
from ocean.state.records import Key


class PolicyBody(Body):
    """How a failed call is retried. `maxAttempts` null: without limit; `delaysMs` replaces the doubling delays."""

    max_attempts: Whole | None = 3
    backoff_ms: Whole = 1_000
    backoff_max_ms: Whole = 60_000
    delays_ms: list[Whole] | None = None
    max_elapsed_ms: Whole | None = None
    jitter: float = 0.0

    def policy(self) -> RetryPolicy:
        """Return the policy as the kernel has it."""
        return RetryPolicy(**{name: getattr(self, name) for name in self.model_fields_set})


class KeyBody(Body):
    name: str
    hold: Literal["tick", "run"] = "tick"


def _key(value: Any) -> Any:
    """Return a key as an object; a string is the name of a key that is held during a tick."""
    return {"name": value} if isinstance(value, str) else value


class CreateBody(Body):
    """Without `input` the run is idle until its first signal; null is an input."""

    session_id: str
    clog_id: str
    input: Any = None
    run_id: str | None = None
    retry: PolicyBody | None = None
    priority: Whole = DEFAULT_PRIORITY
    attributes: dict[str, Any] | None = None
    deadline_at: Whole | None = None
    dedupe_key: str | None = None
    dedupe_ms: Whole | None = None
    concurrency_keys: list[Annotated[KeyBody, BeforeValidator(_key, json_schema_input_type=KeyBody | str)]] = Field(
        default_factory=list
    )
    queue: str | None = None
    rate_key: str | None = None
    rate_limit: Whole | None = None
    rate_per_ms: Whole | None = None
    debounce_ms: Whole | None = None
    debounce_max_ms: Whole | None = None

    def options(self) -> dict[str, Any]:
        """Return the given fields as arguments of `create_run`."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if self.retry is not None:
            given["retry"] = self.retry.policy()
        if self.concurrency_keys:
            given["concurrency_keys"] = [Key(key.name, key.hold) for key in self.concurrency_keys]
        return {"input": UNSET} | given


async def create(call: HandlerCall) -> Response:
    """Create a run; with `waitMs`, wait until it has settled."""
    body: CreateBody = call.body
    query: WaitQuery = call.query
    call.guard.check_session(body.session_id)
    await call.guard.check_clog(body.clog_id, "create")
    run = await call.ocean.create_run(**body.options(), actor=call.actor, request_key=call.request_key)
    if query.wait_ms is None:
        return JsonResponse(record(run), 201)
    (first, *_) = await call.ocean.read_events(run.run_id, limit=1)
    return WhenSettled(call, run.run_id, first.seq, query.wait_ms)
