"""An Ops-Loop in virtual time, called over its routes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from clogs.ops import Ops, OpsSettings, clogs
from clogs.ops.events import Chance, even_chance
from ocean import UNSET
from ocean.testing import Outside, World, world
from ocean.testing.requests import WorldResponse
from tests.invariants import check

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
PROPOSE = "ops_create_proposal_and_maybe_autoapprove"
EVERYTHING = {"key": "auto_approve", "value": {"enabled": True}}


@dataclass(slots=True)
class Loop:
    w: World
    ops: Ops
    headers: dict[str, str] = field(default_factory=dict)

    async def ask(
        self, method: str, path: str, json: Any = None, headers: Mapping[str, str] | None = None
    ) -> WorldResponse:
        sent = UNSET if method == "GET" else {} if json is None else json
        return await self.w.request(method, f"/api/ops/{path}", json=sent, headers={**self.headers, **(headers or {})})

    async def answer(self, method: str, path: str, json: Any = None) -> Any:
        """Return the body of a response that is not a refusal."""
        responded = await self.ask(method, path, json)
        assert responded.status < 300, responded.body
        return responded.json()

    async def refusal(self, method: str, path: str, json: Any = None) -> tuple[int, str | None]:
        """Status and code of what must be a refusal, in the contract's shape."""
        responded = await self.ask(method, path, json)
        content = responded.json()
        assert responded.status >= 400, content
        assert content.keys() <= {"error", "code"}
        assert isinstance(content["error"], str)
        return responded.status, content.get("code")

    async def rows(self, query: str) -> list[Any]:
        found: list[Any] = await self.answer("GET", query)
        return found

    async def rpc(self, name: str, /, **given: Any) -> Any:
        return await self.answer("POST", f"rpc/{name}", given)

    async def put(self, *policies: Any) -> list[Any]:
        put: list[Any] = await self.answer("PUT", "ops_policy", list(policies))
        return put

    async def propose(self, *steps: Any, key: str | None = None, source: str = "manual", **more: Any) -> Any:
        """A new proposal; `more` is of its template. Without steps it has one."""
        template = {"title": "a test", "steps": list(steps) or [{"kind": "noop"}], **more}
        (made,) = await self.rpc(PROPOSE, p_dedupe_key=key, p_source=source, p_template=template)
        return made

    async def mission(self, *steps: Any) -> str:
        """A running mission, by a policy that approves everything."""
        if not await self.rows("ops_policy?key=eq.auto_approve"):
            await self.put(EVERYTHING)
        return str((await self.propose(*steps))["mission_id"])

    async def claim(self, minutes: int = 5, **more: Any) -> Any:
        """The next step, leased; None if there is none."""
        return next(iter(await self.rpc("ops_claim_next_step", p_lease_minutes=minutes, **more)), None)

    async def complete(self, step: Any, status: str = "succeeded", **content: Any) -> Any:
        body = {"lease_id": step["lease_id"], "status": status, **content}
        return await self.answer("POST", f"ops_mission_steps/{step['id']}/complete", body)

    async def steps(self, mission_id: str) -> list[tuple[str, str | None]]:
        """Status and last error of each, in order."""
        found = await self.rows(f"ops_mission_steps?mission_id=eq.{mission_id}&order=created_at.asc")
        return [(step["status"], step["last_error"]) for step in found]

    async def mission_status(self, mission_id: str) -> str:
        (mission,) = await self.rows(f"ops_missions?id=eq.{mission_id}")
        return str(mission["status"])

    async def key(self, *roles: str, scopes: tuple[Any, ...] = ("admin",), actor: str = "ann") -> dict[str, str]:
        """The header of a new key."""
        made = await self.w.ocean.create_api_key(actor=actor, scopes=scopes, roles=roles)
        return {"Authorization": f"Bearer {made.key}"}


@asynccontextmanager
async def loop(
    settings: OpsSettings | None = None, chance: Chance = even_chance, outside: Outside | None = None
) -> AsyncIterator[Loop]:
    settings = settings or OpsSettings()
    async with world(clogs=clogs(settings, chance), outside=outside) as w:
        yield Loop(w, Ops(w.ocean, settings))
        await check(w)
