"""API keys in Python: what is created, what is stored, and what a key allows."""

from typing import Any

import pytest

from ocean import InvalidValue, UnknownApiKey
from ocean.state.records import EVERYTHING, KEY_SCOPES, Access
from ocean.testing import World, world
from tests.stores.dump import dump, of_sqlite

pytestmark = [pytest.mark.anyio, pytest.mark.sqlite]


async def stored(w: World) -> str:
    return repr(await of_sqlite(w.ocean._store).read(dump))


async def test_a_key_acts_as_its_actor() -> None:
    async with world() as w:
        made = await w.ocean.create_api_key("ann", ["signal", "read"], roles=["owner"], sessions=["s"])
        access = await w.ocean.access_by_key(made.key)
        assert access == Access(
            frozenset({"read", "signal"}), "ann", ("owner",), frozenset({"s"}), key_id=made.info.key_id
        )
        assert made.key.startswith(f"ocean_{made.info.key_id}_")
        assert access.caller.roles == ("owner",)


async def test_neither_a_key_nor_a_token_is_stored_or_shown() -> None:
    async with world() as w:
        made = await w.ocean.create_api_key("ann", ["read"])
        session = await w.ocean.start_web_session(made.key)
        assert session is not None
        secrets = [made.key, made.key.split("_", 2)[2], session.token]
        shown = await stored(w) + repr(made) + repr(session) + repr(await w.ocean.list_api_keys())
        assert [secret for secret in secrets if secret in shown] == []
        assert made.info.key_id in shown


async def test_only_the_exact_key_is_accepted() -> None:
    async with world() as w:
        made = await w.ocean.create_api_key("ann", ["read"])
        other = await w.ocean.create_api_key("bob", ["admin"])
        mixed = f"ocean_{other.info.key_id}_{made.key.split('_', 2)[2]}"
        for wrong in ("", "ocean", made.key[:-1], made.key + "x", made.key.upper(), mixed, f" {made.key}", "ä\ud800"):
            assert await w.ocean.access_by_key(wrong) is None


async def test_a_revoked_or_expired_key_gives_no_access() -> None:
    async with world() as w:
        made = await w.ocean.create_api_key("ann", ["read"], expires_at=w.clock.now() + 100)
        session = await w.ocean.start_web_session(made.key)
        assert session is not None
        assert await w.ocean.access_by_web_session(session.token) == await w.ocean.access_by_key(made.key)
        w.clock.advance(100)
        assert await w.ocean.access_by_key(made.key) is None
        assert await w.ocean.access_by_web_session(session.token) is None
        assert await w.ocean.start_web_session(made.key) is None

        made = await w.ocean.create_api_key("ann", ["read"])
        session = await w.ocean.start_web_session(made.key)
        assert session is not None
        await w.ocean.revoke_api_key(made.info.key_id)
        assert await w.ocean.access_by_key(made.key) is None
        assert await w.ocean.access_by_web_session(session.token) is None


async def test_a_web_session_ends_at_its_expiry() -> None:
    async with world() as w:
        made = await w.ocean.create_api_key("ann", ["read"])
        session = await w.ocean.start_web_session(made.key, for_ms=50)
        assert session is not None
        assert session.expires_at == w.clock.now() + 50
        w.clock.advance(49)
        assert await w.ocean.access_by_web_session(session.token) is not None
        w.clock.advance(1)
        assert await w.ocean.access_by_web_session(session.token) is None
        assert await w.ocean.end_web_session(session.token), "it is swept by the next one that begins"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"actor": ""}, "actor must be"),
        ({"scopes": []}, "scopes must be one or more of read, signal, advance, work, admin"),
        ({"scopes": ["read", "reed"]}, "'reed'"),
        ({"scopes": "read"}, "list of strings"),
        ({"sessions": []}, "at least one session"),
        ({"sessions": ["s"], "scopes": ["work"]}, "all sessions"),
        ({"sessions": ["s"] * 2 + [f"s{n}" for n in range(30)]}, "at most 30 sessions, got 31"),
        ({"roles": [1]}, "each of roles"),
        ({"expires_at": 1}, "must be in the future"),
        ({"expires_at": True}, "milliseconds"),
    ],
)
async def test_a_key_with_invalid_arguments_is_refused(args: dict[str, Any], message: str) -> None:
    async with world() as w:
        before = await stored(w)
        with pytest.raises(InvalidValue, match=message):
            await w.ocean.create_api_key(**({"actor": "ann", "scopes": ["read"]} | args))
        assert await stored(w) == before


async def test_an_unknown_key_is_not_revoked() -> None:
    async with world() as w:
        with pytest.raises(UnknownApiKey, match="there is no key 'nope'"):
            await w.ocean.revoke_api_key("nope")


def test_admin_allows_every_scope_and_the_others_only_themselves() -> None:
    for scope in KEY_SCOPES:
        access = Access(frozenset({scope}))
        assert [other for other in KEY_SCOPES if access.may(other)] == ([*KEY_SCOPES] if scope == "admin" else [scope])
    assert EVERYTHING.sees("any")
    assert not Access(frozenset({"admin"}), sessions=frozenset({"s"})).sees("t")
