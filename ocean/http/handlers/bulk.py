"""One verb for many runs: those that the body's query means, and no more of them than `most`."""

from typing import Annotated, Any, cast

from pydantic import Field
from starlette.responses import Response

from ocean.http.framework.bodies import Body, Whole
from ocean.http.framework.call import Call
from ocean.http.framework.wire import Answer, record
from ocean.http.handlers.runs import Status, which_runs
from ocean.kernel.arguments import UNSET
from ocean.kernel.verbs.bulk import BulkQuery
from ocean.state.attributes import Within
from ocean.state.errors import InvalidValue
from ocean.state.records import GenericVerb
from ocean.state.values import shown

MOST_IN_A_REQUEST = 10_000


class ManyBody(Body):
    """Which runs: lists mean any of their values; an attribute is a value, several, or `{"gte": …, "lt": …}`.

    A query that names nothing is refused, unless `everything` is true.
    """

    clog_id: list[str] | None = None
    session_id: list[str] | None = None
    status: list[Status] | None = None
    parent_run_id: list[str] | None = None
    created_from: Whole | None = None
    created_until: Whole | None = None
    ended_from: Whole | None = None
    ended_until: Whole | None = None
    attributes: dict[str, Any] | None = None
    everything: bool = False
    most: Annotated[Whole, Field(ge=1, le=MOST_IN_A_REQUEST)] = 1_000

    async def asked(self, call: Call, verb: GenericVerb) -> BulkQuery:
        """What is meant of it for this sender. Where that is less than everything, it is no longer everything."""
        asked = cast(BulkQuery, {**which_runs(self), "most": self.most, "actor": call.actor})
        if self.attributes is not None:
            asked["attributes"] = {name: _asked(name, value) for name, value in self.attributes.items()}
        said = {name for name, value in asked.items() if value is not None}
        asked = await call.guard.allowed(asked, verb)
        is_narrowed = said < {name for name, value in asked.items() if value is not None}
        asked["everything"] = self.everything and not is_narrowed
        return asked


def _asked(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if not value.keys() <= {*Within.__slots__}:
        raise InvalidValue(f"attribute {shown(name)} is a value, a list, or a range of gt or gte, lt or lte")
    return Within(**value)


class CancelManyBody(ManyBody):
    reason: str | None = None


class SignalManyBody(ManyBody):
    """`signalId` keeps a repeated request from signalling a run twice."""

    signal_id: str
    input: Any = None
    deliver_at: Whole | None = None


async def cancel(call: Call) -> Response:
    body: CancelManyBody = call.body
    return Answer(record(await call.ocean.cancel_runs(reason=body.reason, **await body.asked(call, "cancel"))))


async def signal(call: Call) -> Response:
    body: SignalManyBody = call.body
    done = await call.ocean.signal_runs(
        input=body.input if "input" in body.model_fields_set else UNSET,
        signal_id=body.signal_id,
        deliver_at=body.deliver_at,
        **await body.asked(call, "signal"),
    )
    return Answer(record(done))


async def retry(call: Call) -> Response:
    body: ManyBody = call.body
    return Answer(record(await call.ocean.retry_runs(**await body.asked(call, "retry"))))


async def delete(call: Call) -> Response:
    body: ManyBody = call.body
    return Answer(record(await call.ocean.delete_runs(**await body.asked(call, "delete"))))
