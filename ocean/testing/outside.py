"""`Outside`: stands for the services that ticks call. It responds, keeps every call, and recognises repeats by key."""

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Self

from ocean.state.errors import FetchRefused
from ocean.state.values import decode, encode
from ocean.testing.crash_points import current_call, line_of_caller
from ocean.testing.outside_calls import (
    OutsideCall,
    load_calls,
    readable,
    request_key,
    request_name,
    response_from_json,
    response_to_json,
    save_calls,
)
from ocean.tools.fetch import FetchRequest, FetchResponse
from ocean.tools.outside import RealReach

Answer = FetchResponse | Exception | Callable[[FetchRequest], Any] | Any
"""A response, an exception to raise, a function of the request, or a value that is sent as JSON."""


class Outside:
    """Stands for the services that ticks call. Pass it to `world(clogs, outside=…)`.

    A request with an `Idempotency-Key` that was used before gets the first answer again and has no second effect, as
    with a payment service; without a key every request is an effect. A request without a defined answer is refused, as
    if there were no server, and listed in `unanswered`. With `recorded` calls each gets its recorded answer, and the
    functions of steps are not called. With `live=True` requests without a defined answer are really sent, so that they
    can be recorded.
    """

    def __init__(
        self, recorded: Iterable[OutsideCall] = (), *, live: bool = False, private_hosts: Collection[str] = ()
    ) -> None:
        self.calls: list[OutsideCall] = []
        self.unanswered: list[str] = []
        self._answers: list[tuple[re.Pattern[str], Answer]] = []
        self._recorded = [call for call in recorded if not call.is_repeat]
        self._used: Counter[tuple[str, str, str]] = Counter()
        self._real = RealReach(private_hosts)
        self._is_live = live

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return an `Outside` that repeats the calls in a file of `save`."""
        return cls(load_calls(Path(path)))

    def save(self, path: str | Path) -> None:
        """Write the calls so far to a file, as JSON: bodies and responses, but no request headers."""
        save_calls(Path(path), self.calls)

    def answer(self, request: str, answer: Answer) -> None:
        """Define the answer to requests such as "POST https://pay.example/charges".

        `*` matches anything, and the newest definition wins.
        """
        pattern = re.compile(".*".join(map(re.escape, request.split("*"))))
        self._answers.insert(0, (pattern, answer))

    def effects(self, name: str | None = None) -> list[OutsideCall]:
        """Return the calls that had an effect, without repeats: all of them, or those with this name."""
        return [call for call in self.calls if call.is_effect and name in (None, call.name)]

    async def call(self, name: str, body: Any = None, *, key: str | None = None, answer: Any = None) -> Any:
        """Record an effect that is not a request of `tick.fetch`: for a fake of a client that your steps use."""
        await _reach(f"before the outside call {name!r}")
        body = decode(encode(body, "body"))
        earlier = self._earlier("call", name, key)
        if earlier is not None:
            self._keep(OutsideCall("call", name, body, key, earlier.answer, is_repeat=True))
        else:
            recorded = self._from_recording("call", name, body)
            self._keep(OutsideCall("call", name, body, key, recorded.answer if recorded else answer))
        given = self.calls[-1].answer
        await _reach(f"after the outside call {name!r} had its effect, before its answer was received")
        return given

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Respond to `tick.fetch`."""
        name, key, body = request_name(request), request_key(request), readable(request.body)
        earlier = self._earlier("fetch", name, key)
        if earlier is not None:
            response = _repeated(earlier, body)
        else:
            response = await self._respond(request, name, body)
        kept = response_to_json(response)
        self._keep(OutsideCall("fetch", name, body, key, kept, is_repeat=earlier is not None))
        await _reach(f"after {name} had arrived, before its answer was received")
        return response

    async def take_step(self, name: str, key: str, fn: Callable[[str], Any]) -> Any:
        """Take a step for `tick.step`: call the function, unless its answer is recorded."""
        if (call := current_call.get()) is not None and call.is_dead:
            await call.freeze()
        earlier = self._earlier("step", name, key) if self._recorded else None
        recorded = earlier or self._from_recording("step", name, None)
        if recorded is not None:
            answer = recorded.answer
        elif self._recorded:
            self.unanswered.append(f"step {name}")
            raise FetchRefused(f"step {name!r} is not in the recording; record it again", reason="recording", url="")
        else:
            answer = decode(encode(await self._real.take_step(name, key, fn), f"step {name!r}"))
        self._keep(OutsideCall("step", name, None, key, answer, is_repeat=earlier is not None))
        await _reach(f"after the function of step {name!r} had ended, before its result was stored")
        return answer

    async def _respond(self, request: FetchRequest, name: str, body: Any) -> FetchResponse:
        for pattern, answer in self._answers:
            if pattern.fullmatch(name):
                return await _made(answer, request)
        if (recorded := self._from_recording("fetch", name, body)) is not None:
            return response_from_json(recorded.answer)
        if self._is_live:
            return await self._real.fetch(request)
        self.unanswered.append(name)
        raise FetchRefused(
            f"no answer is defined for {name}: outside.answer({name!r}, …)", reason="connection", url=request.url
        )

    def _earlier(self, kind: str, name: str, key: str | None) -> OutsideCall | None:
        same = (call for call in self.calls if (call.kind, call.name, call.key) == (kind, name, key))
        return next(same, None) if key is not None else None

    def _from_recording(self, kind: str, name: str, body: Any) -> OutsideCall | None:
        """Return the next recorded call like this one that has not been used yet."""
        same = [call for call in self._recorded if (call.kind, call.name, call.body) == (kind, name, body)]
        sort = (kind, name, json.dumps(body, sort_keys=True))
        self._used[sort] += 1
        return same[self._used[sort] - 1] if self._used[sort] <= len(same) else None

    def _keep(self, call: OutsideCall) -> None:
        self.calls.append(call)


async def _made(answer: Answer, request: FetchRequest) -> FetchResponse:
    if callable(answer):
        answer = answer(request)
        answer = await answer if inspect.isawaitable(answer) else answer
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, FetchResponse):
        return answer
    return FetchResponse(200, {"content-type": "application/json"}, encode(answer, "the answer").encode(), request.url)


def _repeated(earlier: OutsideCall, body: Any) -> FetchResponse:
    """Return the first answer, or refuse a key that is used with another body, as real services do."""
    if earlier.body == body:
        return response_from_json(earlier.answer)
    text = json.dumps({"error": "this idempotency key was used before with another body"})
    return FetchResponse(409, {"content-type": "application/json"}, text.encode(), earlier.name.split(" ")[1])


async def _reach(what: str) -> None:
    if (call := current_call.get()) is not None:
        await call.reach(what, line_of_caller())
