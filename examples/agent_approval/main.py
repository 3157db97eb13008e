"""An agent wants to do something dangerous: it is shown to a human, bound to that very call, and done once."""

import tempfile
from pathlib import Path

import anyio

from clogs.agent import make_agent
from clogs.models import ModelReply, Models, OfflineModel, by_script
from ocean import Caller, CallRefused, CredentialRef, Ocean, ToolBox, ToolCall

SECRET = "correct-horse-battery-staple"
SCRIPT = by_script(
    ModelReply("Let me see what is full.", calls=[("disk__usage", {"path": "/"})]),
    ModelReply("The cache can go.", calls=[("disk__delete", {"path": "/var/cache", "key": "storage"})]),
    ModelReply("And so can the home folders.", calls=[("disk__delete", {"path": "/home", "key": "storage"})]),
    ModelReply("I have made 40 GB of room, and left the home folders alone."),
)

disk = ToolBox("disk")
deleted: list[str] = []


@disk.tool(effect="none")
def usage(path: str) -> dict[str, int]:
    """How many gigabytes each folder has."""
    return {"/var/cache": 40, "/home": 300}


@disk.tool(dangerous=True, credentials=["storage"])
async def delete(path: str, key: CredentialRef, call: ToolCall) -> str:
    """Delete a folder for ever."""
    assert key.reveal() == SECRET
    deleted.append(path)
    return f"deleted {path}, as {call.approved_by} said"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        agent = make_agent(Models([OfflineModel(SCRIPT)]), disk, approver_role="operator")
        file = Path(folder) / "ocean.db"
        async with Ocean.open(f"sqlite:///{file}", clogs=[agent], credentials={"storage": SECRET}) as ocean:
            await tell(ocean)
        is_stored = SECRET.encode() in file.read_bytes()
        print("is the credential anywhere in the database?", "yes" if is_stored else "no")


async def tell(ocean: Ocean) -> None:
    run = await ocean.create_run(session_id="ops", clog_id="agent", input={"task": "Make room on the disk."})
    kim, lee = Caller("kim", ("operator",)), Caller("lee")
    for verb in ("approve", "reject"):
        await ocean.settle(run.run_id)
        asked = (await ocean.read_events(run.run_id, types=["approval.requested"]))[-1].payload
        print(f"the agent wants {asked['tool']} {asked['input']}; done so far: {deleted}")
        decision = {"approval_id": asked["approval_id"], "fingerprint": asked["fingerprint"]}
        for who in (lee, kim, kim):
            try:
                answer = await ocean.call_clog(run_id=run.run_id, method=verb, payload=decision, caller=who)
                print(f"{who.actor}: {answer}")
            except CallRefused as error:
                print(f"{who.actor}: {error} ({error.code})")

    output = await ocean.result(run.run_id, timeout_ms=10_000)
    print("answer:", output["answer"])
    for event in await ocean.read_events(run.run_id, types=["tool.called"]):
        told = event.payload
        print("  called", told["tool"], told["input"], told["outcome"], f"approved by {told.get('approved_by')}")
    print("deleted in all:", deleted)


if __name__ == "__main__":
    anyio.run(main)
