"""LangGraph with its SQLite checkpointer, the asynchronous one. A run is a thread of a graph; a node is a step.

By default (`durability="async"`) it continues while a checkpoint is written, and returns when all are written.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from bench.contestants.protocol import (
    Request,
    Result,
    Timestamps,
    Traffic,
    call_concurrently,
    measure_one_by_one,
    respond,
)


class State(TypedDict):
    n: int


async def count(state: State) -> State:
    return {"n": state["n"] + 1}


@asynccontextmanager
async def compiled(request: Request, nodes: int) -> AsyncIterator[Any]:
    """Yield a graph of `nodes` nodes in a row."""
    graph = StateGraph(State)
    names = [f"node{number}" for number in range(nodes)]
    for name in names:
        graph.add_node(name, count)
    for first, second in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(first, second)
    async with AsyncSqliteSaver.from_conn_string(f"{request['db']}/langgraph.db") as saver:
        yield graph.compile(checkpointer=saver)


async def one_tick_runs(request: Request) -> Result:
    async with compiled(request, nodes=1) as graph:

        async def create(number: int) -> None:
            await graph.ainvoke({"n": number}, {"configurable": {"thread_id": f"{time.perf_counter_ns()}-{number}"}})

        async def finished(count: int) -> float:
            began = time.perf_counter()
            await call_concurrently(request["callers"], count, create)
            return time.perf_counter() - began

        await finished(20)
        return {"per_s": request["runs"] / await finished(request["runs"])}


async def signal_latency(request: Request) -> Result:
    """Another input for the same thread."""
    timestamps = Timestamps()
    async with compiled(request, nodes=1) as graph:

        async def invoke(number: int) -> None:
            await graph.ainvoke({"n": number}, {"configurable": {"thread_id": "one"}})
            timestamps.mark_committed()

        return await measure_one_by_one(request["signals"], timestamps, invoke)


async def ten_steps(request: Request) -> Result:
    async with compiled(request, nodes=request["steps"]) as graph:

        async def create(number: int) -> None:
            await graph.ainvoke({"n": number}, {"configurable": {"thread_id": f"{time.perf_counter_ns()}-{number}"}})

        await call_concurrently(request["callers"], 10, create)
        began = time.perf_counter()
        await call_concurrently(request["callers"], request["runs"], create)
        return {"per_s": request["runs"] * request["steps"] / (time.perf_counter() - began)}


async def ask_again(state: State) -> State:
    return {"n": interrupt("what next?")}


async def signals(request: Request) -> Result:
    """Resume interrupted threads, which are then interrupted again. One resume per thread at a time."""
    traffic = Traffic(request["signals"])
    graph = StateGraph(State)
    graph.add_node("ask", ask_again)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "ask")
    async with AsyncSqliteSaver.from_conn_string(f"{request['db']}/langgraph.db") as saver:
        waiting = graph.compile(checkpointer=saver)
        threads = [{"configurable": {"thread_id": f"t{n}"}, "recursion_limit": 1_000} for n in range(request["runs"])]
        turns = [asyncio.Lock() for _ in threads]
        await call_concurrently(64, len(threads), lambda number: waiting.ainvoke({"n": 0}, threads[number]))

        async def resume(number: int) -> None:
            async with turns[number % len(threads)]:
                await waiting.ainvoke(Command(resume=number), threads[number % len(threads)])
            traffic.received(number)

        return await traffic.measure(request["callers"], resume)


if __name__ == "__main__":
    respond(
        {
            "one_tick_runs": one_tick_runs,
            "ten_steps": ten_steps,
            "signal_latency": signal_latency,
            "signals": signals,
        }
    )
