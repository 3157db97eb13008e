"""An agent requests a dangerous call: a human approves that exact call, and it is done once."""

import tempfile
from pathlib import Path

import anyio

from clogs.agent import make_agent
from clogs.models import ModelReply, Models, OfflineModel, by_script
from ocean import Caller, CallRefused, CredentialRef, Ocean, ToolBox, ToolCall

SECRET = "correct-horse-battery-staple"
SCRIPT = by_script(
    ModelReply("Let me check the disk usage.", calls=[("disk__usage", {"path": "/"})]),
    ModelReply("The cache can go.", calls=[("disk__delete", {"path": "/var/cache", "key": "storage"})]),
    ModelReply("The home folders can go too.", calls=[("disk__delete", {"path": "/home", "key": "storage"})]),
    ModelReply("I have freed 40 GB and kept the home folders."),
)

disk = ToolBox("disk")
deleted: list[str] = []


@disk.tool(effect="none")
def usage(path: str) -> dict[str, int]:
    """Return the size of each folder in gigabytes."""
    return {"/var/cache": 40, "/home": 300}


@disk.tool(dangerous=True, credentials=["storage"])
async def delete(path: str, key: CredentialRef, call: ToolCall) -> str:
    """Delete a folder permanently."""
    assert key.reveal() == SECRET
    deleted.append(path)
    return f"deleted {path}, approved by {call.approved_by}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        agent = make_agent(Models([OfflineModel(SCRIPT)]), disk, approver_role="operator")
        file = Path(folder) / "ocean.db"
        async with Ocean.open(f"sqlite:///{file}", clogs=[agent], credentials={"storage": SECRET}) as ocean:
            await demonstrate(ocean)
        is_stored = SECRET.encode() in file.read_bytes()
        print("is the credential stored in the database?", "yes" if is_stored else "no")


async def demonstrate(ocean: Ocean) -> None:
    run = await ocean.create_run(session_id="ops", clog_id="agent", input={"task": "Free some disk space."})
    kim, lee = Caller("kim", ("operator",)), Caller("lee")
    for verb in ("approve", "reject"):
        await ocean.settle(run.run_id)
        request = (await ocean.read_events(run.run_id, types=["approval.requested"]))[-1].payload
        print(f"the agent wants {request['tool']} {request['input']}; deleted so far: {deleted}")
        decision = {"approval_id": request["approval_id"], "fingerprint": request["fingerprint"]}
        for caller in (lee, kim, kim):
            try:
                result = await ocean.call_clog(run_id=run.run_id, method=verb, payload=decision, caller=caller)
                print(f"{caller.actor}: {result}")
            except CallRefused as error:
                print(f"{caller.actor}: {error} ({error.code})")

    output = await ocean.result(run.run_id, timeout_ms=10_000)
    print("answer:", output["answer"])
    for event in await ocean.read_events(run.run_id, types=["tool.called"]):
        call = event.payload
        print("  called", call["tool"], call["input"], call["outcome"], f"approved by {call.get('approved_by')}")
    print("deleted:", deleted)


if __name__ == "__main__":
    anyio.run(main)
