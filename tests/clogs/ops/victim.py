"""A worker process that claims a step, prints that, and is killed while it works."""

import sys

import anyio

from clogs.ops import Ops, OpsSettings, clogs
from ocean import Ocean


async def main(url: str) -> None:
    async with Ocean.open(url, clogs=clogs(OpsSettings())) as ocean:
        (step,) = await Ops(ocean).ops_claim_next_step(1, p_worker_id="victim")
        sys.stdout.write(f"{step['id']}\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
