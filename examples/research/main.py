"""A piece of research: a child for each question, two at a time, one that fails, and a report from the rest."""

import tempfile
from pathlib import Path

import anyio

from clogs.models import Ask, ModelError, ModelReply, Models, OfflineModel, Rule, by_rules
from clogs.research import make_research
from ocean import Ocean

SAID = {
    "taste": "Green tea is grassy, black tea malty.",
    "history": "It was drunk as a medicine before it was drunk for pleasure.",
    "water": "Too hot for green tea, boiling for black.",
}


def answer(ask: Ask) -> ModelReply:
    """Stands for a model: it plans, answers and reports by rules, and has never heard of prices."""
    told = ask.messages[-1].content
    if "plan research" in ask.messages[0].content:
        return ModelReply("\n".join(f"What about its {name}?" for name in (*SAID, "price")))
    if "report" in ask.messages[0].content:
        answers = [line.removeprefix("Answer: ") for line in told.splitlines() if line.startswith("Answer: ")]
        return ModelReply(f"On tea: {' '.join(answers)} Nothing is known of {told.count('No result.')} question.")
    rules = [Rule(f"Question: .*{name}", ModelReply(said)) for name, said in SAID.items()]
    unknown = ModelError("refused", "nothing is known of prices")
    return by_rules(*rules, Rule("price", ModelReply(error=unknown)))(ask)


async def main() -> None:
    clogs = make_research(Models([OfflineModel(answer)]))
    with tempfile.TemporaryDirectory() as folder:
        async with Ocean.open(f"sqlite:///{Path(folder) / 'ocean.db'}", clogs=clogs) as ocean:
            await tell(ocean)


async def tell(ocean: Ocean) -> None:
    body = {"topic": "tea", "width": 2, "at_least": 3}
    run = await ocean.create_run(session_id="library", clog_id="research", input=body)
    output = await ocean.result(run.run_id, timeout_ms=10_000)

    (planned,) = await ocean.read_events(run.run_id, types=["research.planned"])
    for place, asked in enumerate(planned.payload["questions"]):
        child = await ocean.get_run(asked["run_id"])
        assert child is not None
        said = child.output["answer"] if child.output else f"failed: {child.error['message']}" if child.error else "-"
        print(f"lane {place % 2}: {asked['question']} {said}")
    keys = [key.key for key in await ocean.list_keys()]
    print("keys still held:", keys)
    print("report:", output["report"])


if __name__ == "__main__":
    anyio.run(main)
