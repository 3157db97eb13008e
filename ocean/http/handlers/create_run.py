"""`POST /v1/runs`: everything that may be said of a new run."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from starlette.responses import Response

from ocean.http.framework.bodies import Body, Whole
from ocean.http.framework.call import Call
from ocean.http.framework.wire import Answer, record
from ocean.http.handlers.runs import WaitQuery
from ocean.http.handlers.wait_for_run import WhenSettled
from ocean.kernel.arguments import UNSET
from ocean.kernel.new_runs import DEFAULT_PRIORITY
from ocean.state.backoff import RetryPolicy
from ocean.state.records import Key


class PolicyBody(Body):
    """How a failed call is tried again. `maxAttempts` null: for ever; `delaysMs` replaces the doubling."""

    max_attempts: Whole | None = 3
    backoff_ms: Whole = 1_000
    backoff_max_ms: Whole = 60_000
    delays_ms: list[Whole] | None = None
    max_elapsed_ms: Whole | None = None
    jitter: float = 0.0

    def policy(self) -> RetryPolicy:
        return RetryPolicy(**{name: getattr(self, name) for name in self.model_fields_set})


class KeyBody(Body):
    name: str
    hold: Literal["tick", "run"] = "tick"


def _key(value: Any) -> Any:
    """A name alone is a key that is held while a tick works."""
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
        """What was said, in the kernel's words."""
        said = {name: getattr(self, name) for name in self.model_fields_set}
        if self.retry is not None:
            said["retry"] = self.retry.policy()
        if self.concurrency_keys:
            said["concurrency_keys"] = [Key(key.name, key.hold) for key in self.concurrency_keys]
        return {"input": UNSET} | said


async def create(call: Call) -> Response:
    body: CreateBody = call.body
    query: WaitQuery = call.query
    call.guard.check_session(body.session_id)
    await call.guard.check_clog(body.clog_id, "create")
    run = await call.ocean.create_run(**body.options(), actor=call.actor, request_key=call.request_key)
    if query.wait_ms is None:
        return Answer(record(run), 201)
    (first, *_) = await call.ocean.read_events(run.run_id, limit=1)
    return WhenSettled(call, run.run_id, first.seq, query.wait_ms)
