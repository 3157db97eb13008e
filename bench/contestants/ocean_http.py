"""Ocean behind its HTTP API, in a process of its own."""

from bench.contestants.answering import Answer, Ask, Moments, answer, one_by_one
from bench.contestants.ocean import url_of
from bench.contestants.serving import serving

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


if __name__ == "__main__":
    answer({"signal_latency": signal_latency})
