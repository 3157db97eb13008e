"""`ocean keys`: who may ask over HTTP."""

from typing import Annotated

import typer

from ocean.cli.options import Clogs, Db, Json

keys_app = typer.Typer(help="API keys: who may ask over HTTP, and what for.", no_args_is_help=True)


@keys_app.command("create")
def create_key(
    actor: Annotated[str, typer.Option("--actor", metavar="NAME", help="Whom the key speaks for.")],
    scope: Annotated[
        list[str], typer.Option("--scope", metavar="SCOPE", help="read, signal, advance, work or admin. Repeat it.")
    ],
    role: Annotated[list[str] | None, typer.Option("--role", metavar="ROLE", help="For clogs to look at.")] = None,
    session: Annotated[
        list[str] | None, typer.Option("--session", metavar="SESSION", help="Only this one. Repeated: only these.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="WHEN", help="30d from now, or an ISO time. Else never.")
    ] = None,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Make a key and print it, this once. From the first key on, every request needs one."""
    from ocean import Ocean
    from ocean.cli.output import Screen, printable
    from ocean.cli.parsing import time_at
    from ocean.cli.runner import run

    async def work(ocean: Ocean, screen: Screen) -> None:
        expires_at = time_at(expires, "--expires", ocean.clock.now(), ago=False)
        # What is wrong with the scopes is for the verb to say.
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
        screen.say(made.key)
        typer.echo(f"key {made.info.key_id} for {printable(actor)}: keep it, it cannot be shown again", err=True)

    run(work, db, clogs, is_json)


@keys_app.command("list")
def list_keys(
    after: Annotated[str, typer.Option("--after", metavar="KEY_ID", help="Go on behind this key.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="How many keys.")] = 100,
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """List the keys, the revoked ones too. Their secrets are not stored."""
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
            screen.say("no keys: only this machine may ask")

    run(work, db, clogs, is_json)


@keys_app.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="The part between the underscores.")],
    db: Db = None,
    clogs: Clogs = None,
    is_json: Json = False,
) -> None:
    """Refuse a key and its cookies from now on. Open streams end with their next ping."""
    from ocean import Ocean
    from ocean.cli.output import Screen
    from ocean.cli.runner import run

    async def work(ocean: Ocean, screen: Screen) -> None:
        key = await ocean.revoke_api_key(key_id)
        screen.json(key) if screen.is_json else screen.say(f"revoked {key.key_id} of {key.actor}")

    run(work, db, clogs, is_json)
