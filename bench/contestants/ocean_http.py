"""Ocean behind its HTTP API, in a process of its own."""

import asyncio
from pathlib import Path

from bench.contestants.answering import Answer, Ask, Moments, answer, background, in_ms, one_by_one
from bench.contestants.ocean import url_of
from bench.contestants.serving import Served, serving
from bench.contestants.watching import Watcher, watched
from ocean.process import run_process

CLOGS = "bench.contestants.served_clogs"


async def signal_latency(ask: Ask) -> Answer:
    """A signal that waits until it is handled: what the client waits for, the way there and back included."""
    moments = Moments()
    with serving(url_of(ask), f"{CLOGS}:answering") as served:
        served.post("/v1/runs", {"runId": "one", "sessionId": "s", "clogId": "answering"})

        async def signal(number: int) -> None:
            served.post("/v1/runs/one/signal?waitMs=5000", {"input": {"n": number}})
            moments.commit()

        return await one_by_one(ask["signals"], moments, signal)


async def streams(ask: Ask) -> Answer:
    """To all who watch: first as fast as it goes, then at a pace that all can follow."""
    with serving(url_of(ask), f"{CLOGS}:streaming", is_apart=True) as served:
        await Streaming(served, "warm", ask).streamed(5, 0)
        fast = Streaming(served, "fast", ask)
        await fast.streamed(ask["events"], 0)
        paced = Streaming(served, "paced", ask)
        await paced.streamed(ask["paced"], ask["apart_ms"])
        return {"per_s": ask["events"] * ask["writers"] / fast.seconds()} | in_ms(paced.lags())


class Streaming:
    """Some runs, each with its watchers."""

    def __init__(self, served: Served, name: str, ask: Ask) -> None:
        self._served = served
        self._watchers = {
            f"{name}{number}": [Watcher(served.port, f"{name}{number}") for _ in range(ask["watchers"])]
            for number in range(ask["writers"])
        }

    async def streamed(self, events: int, apart_ms: int) -> None:
        """Until every watcher has seen the end."""
        for run_id in self._watchers:
            self._served.post("/v1/runs", {"runId": run_id, "sessionId": "s", "clogId": "streaming"})
        everybody = [each for watchers in self._watchers.values() for each in watchers]

        async def begin() -> None:
            for run_id in self._watchers:
                body = {"input": {"events": events, "apart_ms": apart_ms}}
                await self._served.apost(f"/v1/runs/{run_id}/signal", body)

        await watched(everybody, begin)

    def _said_at(self) -> dict[str, list[float]]:
        """When each event was said: every run remembers that."""
        return {run_id: self._served.get(f"/v1/runs/{run_id}")["output"] for run_id in self._watchers}

    def seconds(self) -> float:
        """From the first event until the last watcher has seen the last."""
        first = min(times[0] for times in self._said_at().values())
        return max(each.seen_at[-1] for watchers in self._watchers.values() for each in watchers) - first

    def lags(self) -> list[float]:
        """From the saying of each event to each watcher."""
        said = self._said_at()
        return [
            seen - told
            for run_id, watchers in self._watchers.items()
            for each in watchers
            for seen, told in zip(each.seen_at, said[run_id], strict=True)
        ]


async def memory(ask: Ask) -> Answer:
    """Each watches a run of its own, which is idle."""
    with serving(url_of(ask), f"{CLOGS}:answering") as served:
        for number in range(ask["watchers"]):
            served.post("/v1/runs", {"runId": f"r{number}", "sessionId": "s", "clogId": "answering"})
        before = _resident_bytes(served.pid)
        watchers = [Watcher(served.port, f"r{number}") for number in range(ask["watchers"])]
        async with background(*(each.watch() for each in watchers)):
            for each in watchers:
                await each.is_ready.wait()
            await asyncio.sleep(ask["settle_s"])
            after = _resident_bytes(served.pid)
    return {"mb": after / 1e6, "before_mb": before / 1e6, "each_kb": (after - before) / ask["watchers"] / 1e3}


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1_024


if __name__ == "__main__":
    answer({"signal_latency": signal_latency, "streams": streams, "memory": memory}, run=run_process)
