"""Ocean behind its HTTP API, in a process of its own."""

import asyncio
from pathlib import Path

from bench.contestants.ocean import url_of
from bench.contestants.protocol import (
    Request,
    Result,
    Timestamps,
    background,
    latencies_ms,
    measure_one_by_one,
    respond,
)
from bench.contestants.server import Server, running_server
from bench.contestants.watchers import Watcher, watch_all
from ocean.process import run_process

CLOGS = "bench.contestants.server_clogs"


async def signal_latency(request: Request) -> Result:
    """A signal request that waits until it is handled, measured at the client with both network directions."""
    timestamps = Timestamps()
    with running_server(url_of(request), f"{CLOGS}:replying") as server:
        server.post("/v1/runs", {"runId": "one", "sessionId": "s", "clogId": "replying"})

        async def signal(number: int) -> None:
            server.post("/v1/runs/one/signal?waitMs=5000", {"input": {"n": number}})
            timestamps.mark_committed()

        return await measure_one_by_one(request["signals"], timestamps, signal)


async def streams(request: Request) -> Result:
    """Stream to all watchers: first as fast as possible, then at a pace that all can follow."""
    with running_server(url_of(request), f"{CLOGS}:streaming", is_apart=True) as server:
        await StreamedRuns(server, "warm", request).streamed(5, 0)
        fast = StreamedRuns(server, "fast", request)
        await fast.streamed(request["events"], 0)
        paced = StreamedRuns(server, "paced", request)
        await paced.streamed(request["paced"], request["apart_ms"])
        return {"per_s": request["events"] * request["writers"] / fast.seconds()} | latencies_ms(paced.lags())


class StreamedRuns:
    """Some runs, each with its watchers."""

    def __init__(self, server: Server, name: str, request: Request) -> None:
        self._served = server
        self._watchers = {
            f"{name}{number}": [Watcher(server.port, f"{name}{number}") for _ in range(request["watchers"])]
            for number in range(request["writers"])
        }

    async def streamed(self, events: int, apart_ms: int) -> None:
        """Create and stream the runs; return when every watcher has seen the end."""
        for run_id in self._watchers:
            self._served.post("/v1/runs", {"runId": run_id, "sessionId": "s", "clogId": "streaming"})
        everyone = [each for watchers in self._watchers.values() for each in watchers]

        async def begin() -> None:
            for run_id in self._watchers:
                body = {"input": {"events": events, "apart_ms": apart_ms}}
                await self._served.apost(f"/v1/runs/{run_id}/signal", body)

        await watch_all(everyone, begin)

    def _streamed_at(self) -> dict[str, list[float]]:
        """Return when each event was streamed, which is the output of its run."""
        return {run_id: self._served.get(f"/v1/runs/{run_id}")["output"] for run_id in self._watchers}

    def seconds(self) -> float:
        """Return the time from the first event until the last watcher has seen the last one."""
        first = min(times[0] for times in self._streamed_at().values())
        return max(each.seen_at[-1] for watchers in self._watchers.values() for each in watchers) - first

    def lags(self) -> list[float]:
        """Return the lag of each event to each watcher."""
        streamed = self._streamed_at()
        return [
            seen - at
            for run_id, watchers in self._watchers.items()
            for each in watchers
            for seen, at in zip(each.seen_at, streamed[run_id], strict=True)
        ]


async def memory(request: Request) -> Result:
    """Each watcher watches an idle run of its own."""
    with running_server(url_of(request), f"{CLOGS}:replying") as server:
        for number in range(request["watchers"]):
            server.post("/v1/runs", {"runId": f"r{number}", "sessionId": "s", "clogId": "replying"})
        before = _resident_bytes(server.pid)
        watchers = [Watcher(server.port, f"r{number}") for number in range(request["watchers"])]
        async with background(*(each.watch() for each in watchers)):
            for each in watchers:
                await each.is_ready.wait()
            await asyncio.sleep(request["settle_s"])
            after = _resident_bytes(server.pid)
    return {"mb": after / 1e6, "before_mb": before / 1e6, "each_kb": (after - before) / request["watchers"] / 1e3}


def _resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1_024


if __name__ == "__main__":
    respond({"signal_latency": signal_latency, "streams": streams, "memory": memory}, run=run_process)
