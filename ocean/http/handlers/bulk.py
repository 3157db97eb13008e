"""Bulk verbs: cancel, signal, retry or delete the runs that match a query, at most `most` of them."""

from typing import Annotated, Any, cast

from pydantic import Field
from starlette.responses import Response

from ocean.http.framework.call import HandlerCall
from ocean.http.framework.parsing import Body, Whole
from ocean.http.framework.responses import JsonResponse, record
from ocean.http.handlers.runs import Status, run_query
from ocean.kernel.arguments import UNSET
from ocean.kernel.verbs.bulk import BulkQuery
from ocean.state.attributes import Within
from ocean.state.errors import InvalidValue
from ocean.state.records import GenericVerb
from ocean.state.values import shown

MOST_IN_A_REQUEST = 10_000


class ManyBody(Body):
    """Which runs: a list matches any of its values; an attribute is a value, a list, or `{"gte": …, "lt": …}`.

    A query without any filter is refused, unless `everything` is true.
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
    end_incomplete: bool | None = None
    everything: bool = False
    most: Annotated[Whole, Field(ge=1, le=MOST_IN_A_REQUEST)] = 1_000

    async def query_for(self, call: HandlerCall, verb: GenericVerb) -> BulkQuery:
        """Return the query, narrowed to what the sender may change; a narrowed query is no longer `everything`."""
        query = cast(BulkQuery, {**run_query(self), "most": self.most, "actor": call.actor})
        if self.attributes is not None:
            query["attributes"] = {name: _attribute(name, value) for name, value in self.attributes.items()}
        given = {name for name, value in query.items() if value is not None}
        query = await call.guard.allowed(query, verb)
        is_narrowed = given < {name for name, value in query.items() if value is not None}
        query["everything"] = self.everything and not is_narrowed
        return query


def _attribute(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if not value.keys() <= {*Within.__slots__}:
        raise InvalidValue(f"attribute {shown(name)} must be a value, a list, or a range of gt or gte, lt or lte")
    return Within(**value)


class CancelManyBody(ManyBody):
    reason: str | None = None


class SignalManyBody(ManyBody):
    """`signalId` prevents a repeated request from signalling a run twice."""

    signal_id: str
    input: Any = None
    deliver_at: Whole | None = None


async def cancel(call: HandlerCall) -> Response:
    """Cancel the runs that match."""
    body: CancelManyBody = call.body
    return JsonResponse(
        record(await call.ocean.cancel_runs(reason=body.reason, **await body.query_for(call, "cancel")))
    )


async def signal(call: HandlerCall) -> Response:
    """Signal the runs that match."""
    body: SignalManyBody = call.body
    done = await call.ocean.signal_runs(
        input=body.input if "input" in body.model_fields_set else UNSET,
        signal_id=body.signal_id,
        deliver_at=body.deliver_at,
        **await body.query_for(call, "signal"),
    )
    return JsonResponse(record(done))


async def retry(call: HandlerCall) -> Response:
    """Retry the failed runs that match, as new runs."""
    body: ManyBody = call.body
    return JsonResponse(record(await call.ocean.retry_runs(**await body.query_for(call, "retry"))))


async def retry_end(call: HandlerCall) -> Response:
    """Call the last tick again of those runs that match and have ended without it."""
    body: ManyBody = call.body
    return JsonResponse(record(await call.ocean.retry_ends(**await body.query_for(call, "retry"))))


async def delete(call: HandlerCall) -> Response:
    """Delete the runs that match."""
    body: ManyBody = call.body
    return JsonResponse(record(await call.ocean.delete_runs(**await body.query_for(call, "delete"))))
