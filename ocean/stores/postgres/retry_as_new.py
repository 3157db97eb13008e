"""Retry as new: the failed run is read, what repeats it is decided here, and created if nothing did before."""

import json
from abc import ABC

from ocean.kernel.store.runs import Request
from ocean.state.records import Key, RunInfo
from ocean.state.retry_as_new import refuse_unless_failed, retried
from ocean.state.values import decode
from ocean.stores.postgres.client.batches import Writing
from ocean.stores.postgres.client.payloads import run_words
from ocean.stores.postgres.client.reading import Asking
from ocean.stores.shared.refusals import run_not_found
from ocean.stores.shared.row_rules import kept_answer
from ocean.stores.shared.rows import run_from, shown_from


class Retries(Asking, ABC):
    writing: Writing

    async def retry_run(self, run_id: str, actor: str | None, request: Request | None) -> RunInfo:
        key = None if request is None else request.key
        found, now = await self._ask_at("failed_run", run_id=run_id, key=key)
        if request is not None and (kept := kept_answer(found["request"], request)) is not None:
            return shown_from(json.loads(kept))
        if found["run"] is None:
            raise run_not_found(run_id)
        run = run_from(found["run"])
        refuse_unless_failed(run)
        attributes = {name: decode(value) for name, value in found["attributes"]}
        keys = tuple(Key(name, hold) for name, hold in found["keys"])
        new = retried(run, found["details"], attributes, keys, found["input"], actor, now)
        words = {"run_id": run_id, "new": run_words(new)}
        return shown_from(await self.writing.write("retry_run", words, request))
