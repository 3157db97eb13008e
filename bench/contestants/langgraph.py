"""LangGraph with its SQLite checkpointer, the asynchronous one. A run is a thread of a graph; a node is a step.

As shipped (`durability="async"`) it goes on while a checkpoint is written, and returns when all are.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from bench.contestants.answering import Answer, Ask, Moments, Traffic, answer, by_callers, one_by_one


class State(TypedDict):
    n: int


async def count(state: State) -> State:
    return {"n": state["n"] + 1}


@asynccontextmanager
async def compiled(ask: Ask, nodes: int) -> AsyncIterator[Any]:
    """A graph of so many nodes in a row."""
    graph = StateGraph(State)
    names = [f"node{number}" for number in range(nodes)]
    for name in names:
        graph.add_node(name, count)
    for first, second in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(first, second)
    async with AsyncSqliteSaver.from_conn_string(f"{ask['db']}/langgraph.db") as saver:
        yield graph.compile(checkpointer=saver)


async def one_tick_runs(ask: Ask) -> Answer:
    async with compiled(ask, nodes=1) as graph:

        async def create(number: int) -> None:
            await graph.ainvoke({"n": number}, {"configurable": {"thread_id": f"{time.perf_counter_ns()}-{number}"}})

        async def finished(count: int) -> float:
            began = time.perf_counter()
            await by_callers(ask["callers"], count, create)
            return time.perf_counter() - began

        await finished(20)
        return {"per_s": ask["runs"] / await finished(ask["runs"])}


async def signal_latency(ask: Ask) -> Answer:
    """Another input for the same thread."""
    moments = Moments()
    async with compiled(ask, nodes=1) as graph:

        async def invoke(number: int) -> None:
            await graph.ainvoke({"n": number}, {"configurable": {"thread_id": "one"}})
            moments.commit()

        return await one_by_one(ask["signals"], moments, invoke)


async def ten_steps(ask: Ask) -> Answer:
    async with compiled(ask, nodes=ask["steps"]) as graph:

        async def create(number: int) -> None:
            await graph.ainvoke({"n": number}, {"configurable": {"thread_id": f"{time.perf_counter_ns()}-{number}"}})

        await by_callers(ask["callers"], 10, create)
        began = time.perf_counter()
        await by_callers(ask["callers"], ask["runs"], create)
        return {"per_s": ask["runs"] * ask["steps"] / (time.perf_counter() - began)}


async def ask_again(state: State) -> State:
    return {"n": interrupt("what next?")}


async def signals(ask: Ask) -> Answer:
    """A thread that is interrupted is resumed, and interrupted again: one at a time, or it would be resumed twice."""
    traffic = Traffic(ask["signals"])
    graph = StateGraph(State)
    graph.add_node("ask", ask_again)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "ask")
    async with AsyncSqliteSaver.from_conn_string(f"{ask['db']}/langgraph.db") as saver:
        waiting = graph.compile(checkpointer=saver)
        threads = [{"configurable": {"thread_id": f"t{n}"}, "recursion_limit": 1_000} for n in range(ask["runs"])]
        turns = [asyncio.Lock() for _ in threads]
        await by_callers(64, len(threads), lambda number: waiting.ainvoke({"n": 0}, threads[number]))

        async def resume(number: int) -> None:
            async with turns[number % len(threads)]:
                await waiting.ainvoke(Command(resume=number), threads[number % len(threads)])
            traffic.received(number)

        return await traffic.sent(ask["callers"], resume)


if __name__ == "__main__":
    answer(
        {
            "one_tick_runs": one_tick_runs,
            "ten_steps": ten_steps,
            "signal_latency": signal_latency,
            "signals": signals,
        }
    )
