"""`ocean keys`: the API keys of the HTTP API."""

from typing import Annotated

import typer

from ocean.cli.options import Clogs, Db, Json

keys_app = typer.Typer(help="API keys: who may use the HTTP API, and for what.", no_args_is_help=True)


@keys_app.command("create")
def create_key(
    actor: Annotated[str, typer.Option("--actor", metavar="NAME", help="The actor of requests with this key.")],
    scope: Annotated[
        list[str],
        typer.Option("--scope", metavar="SCOPE", help="read, signal, advance, work or admin. May be repeated."),
    ],
    role: Annotated[
        list[str] | None,
        typer.Option("--role", metavar="ROLE", help="A role, for the checks of clogs. May be repeated."),
    ] = None,
    session: Annotated[
        list[str] | None, typer.Option("--session", metavar="SESSION", help="Only this session. Repeated: only these.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="WHEN", help="30d (from now), or an ISO time. Default: never.")
    ] = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Create a key and print it once. From the first key on, every request needs one."""
    from ocean import Ocean
    from ocean.cli.output import Screen, printable
    from ocean.cli.parsing import time_at
    from ocean.cli.runner import run

    async def work(ocean: Ocean, screen: Screen) -> None:
        expires_at = time_at(expires, "--expires", ocean.clock.now(), ago=False)
        # The verb checks the scopes.
        made = await ocean.create_api_key(
            actor,
            scope,  # type: ignore[arg-type]
            roles=role or (),
            sessions=session,
            expires_at=expires_at,
        )
        if screen.is_json:
            screen.json(made)
            return
        screen.print(made.key)
        typer.echo(f"key {made.info.key_id} for {printable(actor)}; store it now, it cannot be shown again", err=True)

    run(work, db, clogs, is_json)


@keys_app.command("list")
def list_keys(
    after: Annotated[str, typer.Option("--after", metavar="KEY_ID", help="List the keys after this one.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="How many keys.")] = 100,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """List the keys, including revoked ones. Their secrets are not stored."""
    from ocean import Ocean
    from ocean.cli.output import Screen
    from ocean.cli.runner import run
    from ocean.cli.tables import api_keys_table

    async def work(ocean: Ocean, screen: Screen) -> None:
        keys = await ocean.list_api_keys(after=after, limit=limit)
        if screen.is_json:
            screen.json(keys)
        elif keys:
            screen.show(api_keys_table(keys, ocean.clock.now()))
        else:
            screen.print("no keys: only this machine may use the HTTP API")

    run(work, db, clogs, is_json)


@keys_app.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="The part of the key between the underscores.")],
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Revoke a key and its cookies. Open streams end at their next ping."""
    from ocean import Ocean
    from ocean.cli.output import Screen
    from ocean.cli.runner import run

    async def work(ocean: Ocean, screen: Screen) -> None:
        key = await ocean.revoke_api_key(key_id)
        screen.json(key) if screen.is_json else screen.print(f"revoked {key.key_id} of {key.actor}")

    run(work, db, clogs, is_json)
