"""Settings from flags, the environment, pyproject.toml and entry points; and loading the clogs that they name.

Each setting comes from the first source that has it: flag, environment, `[tool.ocean]`, entry points.
"""

import importlib
import inspect
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from ocean.clog.clog import Clog
from ocean.state.errors import OceanError, near_name
from ocean.state.values import shown

DEFAULT_DB = "sqlite:///ocean.db"
GROUP = "ocean.clogs"
TABLE = "[tool.ocean]"


class BadSettings(OceanError):
    """An invalid setting. The message names its source and what to write instead."""

    code = "bad_settings"
    http_status = 400


@dataclass(frozen=True, slots=True)
class Settings:
    """`clogs` are places, `module:attr`; `clogs_from` is the source they were read from."""

    db: str = DEFAULT_DB
    clogs: tuple[str, ...] = ()
    clogs_from: str = "nowhere"


def read_settings(
    db: str | None, clogs: str | None, *, environ: Mapping[str, str], folder: Path, entry_points: bool = True
) -> Settings:
    """Read the settings. `db` and `clogs` are the values of the flags; `folder` is the working directory."""
    table = _table(folder / "pyproject.toml")
    named = [
        ("--clogs", _places(clogs)),
        ("OCEAN_CLOGS", _places(environ.get("OCEAN_CLOGS"))),
        (TABLE, tuple(table.get("clogs", ()))),
    ]
    if entry_points:
        named.append((f"entry points {GROUP}", _entry_points()))
    source, places = next(((source, places) for source, places in named if places), ("nowhere", ()))
    url = db or environ.get("OCEAN_DB") or table.get("db") or DEFAULT_DB
    return Settings(url, places, source)


def load_clogs(settings: Settings, folder: Path) -> list[Clog]:
    """Import the clogs of all places. The working directory is added to the import path."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    found: dict[str, tuple[Clog, str]] = {}
    for place in settings.clogs:
        for clog in _clogs_at(place, settings.clogs_from):
            first, where = found.setdefault(clog.clog_id, (clog, place))
            if first is not clog:
                raise BadSettings(
                    f"clog ids must be unique within an instance, got {clog.clog_id!r} from {where!r} and {place!r}"
                )
    return [clog for clog, _ in found.values()]


def _places(text: str | None) -> tuple[str, ...]:
    return tuple(place.strip() for place in (text or "").split(",") if place.strip())


def _entry_points() -> tuple[str, ...]:
    return tuple(sorted({point.value for point in metadata.entry_points(group=GROUP)}))


def _table(path: Path) -> dict[str, Any]:
    """Return the checked `[tool.ocean]` table, empty if there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"cannot read {path.name}: {error}") from error
    try:
        tool = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(f"{path.name} must be TOML: {error}") from error
    table = tool.get("ocean", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise BadSettings(f"{TABLE} in {path.name} must be a table, got {shown(table)}")
    for name in table:
        if name not in ("db", "clogs"):
            raise BadSettings(f"{TABLE} in {path.name} has no setting {name!r}; {near_name(name, ('db', 'clogs'))}")
    if not isinstance(table.get("db", ""), str):
        raise BadSettings(f"{TABLE} db in {path.name} must be a database URL, got {shown(table['db'])}")
    clogs = table.get("clogs", [])
    if not isinstance(clogs, list) or not all(isinstance(place, str) for place in clogs):
        raise BadSettings(f'{TABLE} clogs in {path.name} must be a list like ["module:attr"], got {shown(clogs)}')
    return table


def _clogs_at(place: str, source: str) -> list[Clog]:
    name, colon, attribute = (part.strip() for part in place.partition(":"))
    if not name or not colon or not attribute:
        raise BadSettings(f"{source}: {place!r} must be module:attr, as in clogs.counter:counter")
    module = _imported(name, source)
    if not hasattr(module, attribute):
        names = [known for known in vars(module) if not known.startswith("_")]
        raise BadSettings(f"{source}: module {name!r} has no {attribute!r}; {near_name(attribute, names)}")
    value = getattr(module, attribute)
    is_made = callable(value) and not isinstance(value, Clog)
    return _as_clogs(_made(value, place, source) if is_made else value, f"{place}()" if is_made else place, source)


def _imported(name: str, source: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadSettings(
                f"{source}: there is no module {error.name!r}, neither installed nor in the working directory"
            ) from error
        raise BadSettings(f"{source}: importing {name!r} failed: {_described(error)}") from error
    except (Exception, SystemExit) as error:
        raise BadSettings(f"{source}: importing {name!r} failed: {_described(error)}") from error


def _made(maker: Any, place: str, source: str) -> Any:
    try:
        return maker()
    except (Exception, SystemExit) as error:
        raise BadSettings(f"{source}: calling {place} failed: {_described(error)}") from error


def _as_clogs(value: Any, place: str, source: str) -> list[Clog]:
    if isinstance(value, Clog):
        return [value]
    if inspect.iscoroutine(value):
        value.close()
    several = list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else None
    if several is None or not several:
        what = "an empty list" if several == [] else shown(value)
        raise BadSettings(
            f"{source}: {place} must be a Clog, a list of them, or a function that returns them, got {what}"
        )
    for each in several:
        if not isinstance(each, Clog):
            raise BadSettings(f"{source}: each of {place} must be a Clog, got {shown(each)}")
    return several


def _described(error: BaseException) -> str:
    """Return the error, and where in the user's code it was raised."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f" ({Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno})" if frame else ""
    return f"{type(error).__name__}: {error}{where}"
