"""A process that makes decisions until it is killed, and the history of several such processes."""

import itertools
import json
import os
import random
from pathlib import Path

from ocean import Conflict, Ocean, StoreBusy
from tests.crash.ferry_clog import note, noted
from tests.crash.places import history_of, url_of
from tests.linearizability.checker import Operation
from tests.linearizability.clients import drawn, random_person
from tests.linearizability.decisions import decision

DECISIONS, CALLS_EACH = 40, 8


def names() -> list[str]:
    return [f"decision-{number}" for number in range(DECISIONS)]


async def decide(db: str, seed: str) -> None:
    """Make decisions for ever, competing with other processes; record each request before and each response after."""
    chance, history = random.Random(seed), history_of(db)
    async with Ocean.open(url_of(db), clogs=[decision()]) as ocean:
        for number in itertools.count():
            first = min(len(noted(history, "answered")) // CALLS_EACH, DECISIONS - 3)
            run_id, what = names()[first + chance.randrange(3)], drawn(chance, random_person(chance))
            request_id = f"{os.getpid()}-{number}"
            note(history, "asked", request_id, run_id, *what)
            try:
                answer = await ocean.call_clog(run_id=run_id, method=what[0], payload=what[1] if what[1:] else None)
                note(history, "answered", request_id, json.dumps(answer, separators=(",", ":")))
            except Conflict:
                note(history, "undone", request_id)
            except StoreBusy:
                pass
            print(request_id, flush=True)  # noqa: T201


def histories(file: Path) -> dict[str, list[Operation]]:
    """Return the history of each decision. The lines of the file are whole, and in the order of time."""
    lines = [line.split() for line in file.read_text().splitlines()]
    ends = {words[1]: (moment, words) for moment, words in enumerate(lines) if words[0] != "asked"}
    of: dict[str, list[Operation]] = {}
    for moment, (word, request_id, *rest) in enumerate(lines):
        if word != "asked":
            continue
        run_id, *what = rest
        answered_at, end = ends.get(request_id, (None, ["lost"]))
        if end[0] == "answered":
            of.setdefault(run_id, []).append(Operation(tuple(what), moment, answered_at, json.loads(end[2])))
        elif end[0] == "lost":
            of.setdefault(run_id, []).append(Operation(tuple(what), moment))
    return of
