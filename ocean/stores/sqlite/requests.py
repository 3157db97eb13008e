"""Request keys: key, body hash and result, stored in the transaction that has the effect."""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import TypeAdapter

from ocean.kernel.store.runs import Request
from ocean.stores.shared.row_rules import kept_answer
from ocean.stores.sqlite.engine.unit_of_work import Unit

T = TypeVar("T")

_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def once(u: Unit, request: Request | None, answer_type: type[T], act: Callable[[], T]) -> T:
    """Call `act` and store its result, or return the stored result of the same request."""
    if request is None:
        return act()
    stored = stored_answer(u, request)
    if stored is not None:
        return _adapter(answer_type).validate_json(stored)
    answer = act()
    keep_answer(u, request, _adapter(answer_type).dump_json(answer).decode())
    return answer


def _adapter(answer_type: type[T]) -> TypeAdapter[T]:
    """Return a cached adapter: creating one costs more than the whole transaction."""
    if answer_type not in _adapters:
        _adapters[answer_type] = TypeAdapter(answer_type)
    return _adapters[answer_type]


def stored_answer(u: Unit, request: Request) -> str | None:
    return kept_answer(u.one("get_request", request_key=request.key), request)


def keep_answer(u: Unit, request: Request, answer: str) -> None:
    u.later("insert_request", request.key, request_key=request.key, hash=request.hash, answer=answer, now=u.now)
