"""Research a topic: one child run per question, two at a time; one fails, and the report uses the rest."""

import tempfile
from pathlib import Path

import anyio

from clogs.models import Ask, ModelError, ModelReply, Models, OfflineModel, Rule, by_rules
from clogs.research import make_research
from ocean import Ocean

RESULTS = {
    "taste": "Green tea is grassy, black tea malty.",
    "history": "It was drunk as a medicine before it was drunk for pleasure.",
    "water": "Too hot for green tea, boiling for black.",
}


def reply(ask: Ask) -> ModelReply:
    """Simulate a model: it plans, researches and reports by rules, and knows nothing about prices."""
    prompt = ask.messages[-1].content
    if "plan research" in ask.messages[0].content:
        return ModelReply("\n".join(f"What about its {name}?" for name in (*RESULTS, "price")))
    if "report" in ask.messages[0].content:
        results = [line.removeprefix("Answer: ") for line in prompt.splitlines() if line.startswith("Answer: ")]
        return ModelReply(f"On tea: {' '.join(results)} Open questions: {prompt.count('Question: ') - len(results)}.")
    rules = [Rule(f"Question: .*{name}", ModelReply(text)) for name, text in RESULTS.items()]
    unknown = ModelError("refused", "no data on prices")
    return by_rules(*rules, Rule("price", ModelReply(error=unknown)))(ask)


async def main() -> None:
    clogs = make_research(Models([OfflineModel(reply)]))
    with tempfile.TemporaryDirectory() as folder:
        async with Ocean.open(f"sqlite:///{Path(folder) / 'ocean.db'}", clogs=clogs) as ocean:
            await demonstrate(ocean)


async def demonstrate(ocean: Ocean) -> None:
    body = {"topic": "tea", "width": 2, "at_least": 3}
    run = await ocean.create_run(session_id="library", clog_id="research", input=body)
    output = await ocean.result(run.run_id, timeout_ms=10_000)

    (planned,) = await ocean.read_events(run.run_id, types=["research.planned"])
    for place, planned_question in enumerate(planned.payload["questions"]):
        child = await ocean.get_run(planned_question["run_id"])
        assert child is not None
        result = child.output["answer"] if child.output else f"failed: {child.error['message']}" if child.error else "-"
        print(f"lane {place % 2}: {planned_question['question']} {result}")
    keys = [key.key for key in await ocean.list_keys()]
    print("keys still held:", keys)
    print("report:", output["report"])


if __name__ == "__main__":
    anyio.run(main)
