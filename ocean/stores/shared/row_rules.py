"""What stores decide about rows they have read, each rule once for all stores."""

from collections.abc import Sequence

from ocean.kernel.store.runs import Request
from ocean.state.counters import Counter, Take, Taken, decide
from ocean.state.eligibility import kernel_end
from ocean.state.records import ApiKey, Delay, Run
from ocean.state.tracebacks import without_traceback
from ocean.state.values import decode, encode
from ocean.stores.shared.refusals import request_key_reused
from ocean.stores.shared.rows import Row


def is_live(key: ApiKey, now: int) -> bool:
    return key.revoked_at is None and (key.expires_at is None or now < key.expires_at)


def kept_answer(row: Row | None, request: Request) -> str | None:
    """Return the result stored for a request key, or None; refuse a key that was used with another body."""
    if row is None:
        return None
    if row["hash"] != request.hash:
        raise request_key_reused(request.key)
    return str(row["answer"])


def preview_takes(counter: Counter | None, takes: Sequence[Take], now: int) -> Taken:
    """The result that the last of these takes of one key would have after the others; a refusal if any is refused."""
    for take in takes:
        taken, counter = decide(counter, take, now)
        if not taken:
            break
    return taken


def text_without_traceback(error: str | None) -> str | None:
    """Return a stored error without the traceback of its place, as a parent gets it."""
    return error if error is None or '"traceback"' not in error else encode(without_traceback(decode(error)))


def is_debounced(run: Run | None, now: int) -> bool:
    """Whether a debounced run still waits for further creations: no claim has taken it, and no end is due."""
    return run is not None and run.delayed_by is Delay.DEBOUNCE and kernel_end(run, now) is None


def holder_from(dedupe: Row | None, run: Run | None, now: int) -> tuple[str, str] | None:
    """The run that holds a dedupe key now, and the hash of the body that created it.

    `run` is the holder's record if the key is debounced.
    """
    if dedupe is None or (dedupe["expires_at"] is not None and dedupe["expires_at"] <= now):
        return None
    if dedupe["debounced"] and not is_debounced(run, now):
        return None
    return dedupe["run_id"], dedupe["body_hash"]
