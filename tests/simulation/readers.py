"""Readers that follow the log, or one run of it, and are interrupted now and then."""

from random import Random
from typing import TYPE_CHECKING

import anyio

from ocean import Ocean, OceanError
from ocean.state.clock import sleep
from tests.simulation.history import Feed
from tests.simulation.instances import Instance, Unreachable

if TYPE_CHECKING:
    from tests.simulation.world import World

SHARE = 0.15
"""The share of seeds with readers of single runs."""


async def reader(world: "World", instance: Instance) -> None:
    """Follow the whole log. After an interruption, continue after the last event seen."""
    seen = world.history.followed[instance.name]

    async def follow(ocean: Ocean) -> None:
        with anyio.move_on_after(world.chance.randint(100, 4_000) / 1000):
            async for event in ocean.follow(after=seen[-1][0] if seen else 0):
                seen.append((event.seq, event.type))

    while True:
        await sleep(world.clock, world.chance.randint(0, 500))
        try:
            await instance.ask(follow)
        except Unreachable:
            world.count_event("fault dropped reader")
        except OceanError as error:
            world.count_event(f"reader {error.code}")


async def run_reader(world: "World") -> None:
    """Follow one run after another, each by its own feed, through any instance, until that feed ends."""
    chance = Random(f"{world.seed}-feeds")
    if chance.random() > SHARE:
        return
    while True:
        await sleep(world.clock, chance.randint(200, 2_000))
        if not world.history.runs:
            continue
        feed = Feed(chance.choice(world.history.runs))
        world.history.feeds.append(feed)
        for _ in range(chance.randint(1, 8)):
            await _follow(world, feed, chance)
            if feed.has_ended:
                break


async def _follow(world: "World", feed: Feed, chance: Random) -> None:
    async def follow(ocean: Ocean) -> None:
        with anyio.move_on_after(chance.randint(50, 3_000) / 1000):
            async for event in ocean.follow(feed.run_id, after=feed.seen[-1][0] if feed.seen else 0):
                feed.seen.append((event.seq, event.type))
            feed.has_ended = True
            world.count_event("feed ended")

    try:
        await chance.choice(world.instances).ask(follow)
        world.count_event("feed resumed")
    except Unreachable:
        world.count_event("feed dropped")
        await sleep(world.clock, 100)
    except OceanError as error:
        world.count_event(f"feed {error.code}")
