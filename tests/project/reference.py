"""Generate docs/reference.md from the public names, their signatures and their docstrings."""

import dataclasses
import enum
import inspect
import re
import typing
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import ocean.public
import ocean.testing
from ocean import OceanError

GROUPS = {
    "Ocean": ("compose",),
    "Clogs": ("clog", "routes", "webhooks"),
    "Tools": ("author", "builtin", "call", "invoke", "credentials", "redact"),
    "Ticks": ("tick", "rows", "fetch", "counters", "arguments"),
    "Flows": ("flow",),
    "Outcomes": ("outcomes", "backoff"),
    "Records": ("records", "attributes", "eligibility", "dry_run_result", "bulk", "clock"),
    "Workers outside": ("leases",),
    "Access": ("access", "api_keys"),
}
"""By the module that a name comes from. Names of others are grouped under the first words of their docstring."""
HEAD = """# Reference

Every public name, made from the code by `python -m tests.project.test_reference`; a test compares. For how they belong
together read [concepts](concepts.md) and [writing a clog](writing-a-clog.md). HTTP is in [openapi.json](openapi.json),
the commands are in [the command line](cli.md), the tools for agents in [MCP](mcp.md). `ocean.testing` is at the end.
"""


def written() -> str:
    parts = [HEAD]
    for title, names in _grouped(ocean.public).items():
        parts.append(f"## {title}\n")
        parts += [_entry(name, getattr(ocean.public, name)) for name in names]
    parts.append("## Errors\n\nEach has `message`, `code`, `http_status`, `retryable` and `details`.\n")
    parts.append(_errors())
    parts.append("## Testing\n\nNames of `ocean.testing`; [how to use them](testing-a-clog.md).\n")
    parts += [_entry(name, getattr(ocean.testing, name)) for name in sorted(ocean.testing.__all__, key=str.lower)]
    return "\n".join(parts).rstrip() + "\n"


def _grouped(public: ModuleType) -> dict[str, list[str]]:
    titles = {module: title for title, modules in GROUPS.items() for module in modules}
    found: dict[str, list[str]] = {title: [] for title in GROUPS}
    for name in public.__all__:
        value = getattr(public, name)
        if not _is_error(value):
            module = _home(name, public)
            found.setdefault(titles.get(module.rpartition(".")[2]) or _first_words(module), []).append(name)
    return {title: sorted(names, key=_place) for title, names in found.items() if names}


def _home(name: str, public: ModuleType) -> str:
    """Return the module that a name is imported from, also for values without `__module__`."""
    source = inspect.getsource(public)
    for match in re.finditer(r"^from (\S+) import (\([^)]*\)|.*)$", source, re.MULTILINE):
        if re.search(rf"\b{name}\b", match[2]):
            return match[1]
    raise LookupError(name)


def _first_words(module: str) -> str:
    member = inspect.getdoc(__import__(module, fromlist=["_"])) or module
    return re.split(r"[:.;,]", member)[0].strip()


def _place(name: str) -> tuple[bool, str]:
    """The class that a group is named after comes first."""
    return name not in ("Ocean", "Clog", "Tick", "Outcome", "RunInfo"), name.lower()


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _entry(name: str, value: Any) -> str:
    if inspect.isclass(value):
        return "\n".join(_class(name, value))
    if callable(value) and hasattr(value, "__name__") and not isinstance(value, typing.TypeVar):
        return f"### {name}\n\n{_code(name, value)}\n{_doc(value)}\n"
    if typing.get_args(value):
        members = " | ".join(f"`{getattr(each, '__name__', each)}`" for each in typing.get_args(value))
        return f"### {name}\n\n{members}\n"
    return f"### {name}\n\n{_said_of_value(name)}\n"


def _said_of_value(name: str) -> str:
    """The string under a module's constant, which documents it; or the docstring of its type."""
    module = __import__(_home(name, ocean.public), fromlist=["_"])
    match = re.search(rf'^{name}\b[^\n]*\n"""(.*?)"""', inspect.getsource(module), re.MULTILINE | re.DOTALL)
    return match[1] if match else _doc(type(getattr(ocean.public, name)))


def _class(name: str, value: type) -> Iterator[str]:
    yield f"### {name}\n"
    if issubclass(value, enum.Enum):
        yield f"{_doc(value)}\n"
        yield f"{', '.join(f'`{each.value}`' for each in value)}\n"
        return
    if not getattr(value, "_is_protocol", False) and "__init__" in vars(value):
        yield _code(name, value)
    yield f"{_doc(value)}\n"
    members = [*_members(value)]
    properties = [(each, member) for each, member in members if isinstance(member, property)]
    if properties:
        yield "".join(f"- `{each}`: {_line(_doc(member))}\n" for each, member in properties)
    for each, member in members:
        if not isinstance(member, property):
            yield f"#### {name}.{each}\n\n{_code(each, member)}\n{_doc(member)}\n"


def _members(value: type) -> Iterator[tuple[str, Any]]:
    for name in sorted(dir(value)):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(value, name)
        member = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        function = member.fget if isinstance(member, property) else member
        is_ours = (getattr(function, "__module__", None) or "").startswith("ocean")
        if is_ours and (isinstance(member, property) or inspect.isroutine(member)) and inspect.getdoc(member):
            yield name, member


def _code(name: str, value: Any) -> str:
    lines = _signature(value)
    prefix = "async " if inspect.iscoroutinefunction(inspect.unwrap(value)) else ""
    one = f"{prefix}{name}({', '.join(lines[:-1])}){lines[-1]}"
    if len(one) <= 110:
        return f"```\n{one}\n```\n"
    inside = "".join(f"    {line},\n" for line in lines[:-1])
    return f"```\n{prefix}{name}(\n{inside}){lines[-1]}\n```\n"


def _signature(value: Any) -> list[str]:
    """Each parameter, and last the return type."""
    signature = inspect.signature(value)
    member: list[str] = []
    kinds = inspect.Parameter
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        has_star = any(each.startswith("*") for each in member)
        if parameter.kind is kinds.KEYWORD_ONLY and not has_star:
            member.append("*")
        unpacked = next(iter(typing.get_args(parameter.annotation)), None)
        if typing.is_typeddict(unpacked):
            member += _options(unpacked)[has_star:]
            continue
        text = re.sub(r"<[\w.]*?(\w+) object at 0x[0-9a-f]+>", r"\1()", str(parameter))
        member.append(_plain(re.sub(r"<factory>|<function (\w+) at 0x[0-9a-f]+>", lambda match: match[1] or "…", text)))
    answer = "" if inspect.isclass(value) else signature.return_annotation
    shown = answer if isinstance(answer, str) else inspect.formatannotation(answer)
    is_shown = answer is not inspect.Signature.empty and answer != ""
    return [*member, f" -> {_plain(shown)}" if is_shown else ""]


def _options(options_type: Any) -> list[str]:
    """Return the keyword options that a `TypedDict` lists. All are optional."""
    hints = typing.get_type_hints(options_type)
    return ["*", *(f"{name}: {_plain(inspect.formatannotation(hint))} = …" for name, hint in hints.items())]


def _plain(text: str) -> str:
    """Types by their own names, without the modules that they come from."""
    named = re.sub(r"<(?:\w+\.)*(\w+): [^>]*>|<class '(?:\w+\.)*(\w+)'>", lambda match: match[1] or match[2], text)
    return re.sub(r"\b(?:[a-z_]+\.)+([A-Z]\w*)", r"\1", named).replace("~", "")


def _doc(value: Any) -> str:
    return (inspect.getdoc(value.fget if isinstance(value, property) else value) or "").strip()


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _errors() -> str:
    rows = ["| error | code | status | retryable | means |", "|---|---|---|---|---|"]
    for name in ocean.public.__all__:
        value = getattr(ocean.public, name)
        if _is_error(value):
            kind = value if issubclass(value, OceanError) else None
            code, status = (f"`{kind.code}`", str(kind.http_status)) if kind else ("", "")
            again = "yes" if kind and kind.retryable else ""
            rows.append(f"| `{name}` | {code} | {status} | {again} | {_line(_doc(value))} |")
    return "\n".join(rows) + "\n"


def undocumented() -> list[str]:
    """Public names, and their methods and properties, that have no docstring."""
    missing: list[str] = []
    for module in (ocean.public, ocean.testing):
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            if not _has_own_words(value):
                missing.append(name)
            if inspect.isclass(value) and module is ocean.public:
                missing += [f"{name}.{each}" for each in _silent(value)]
    return missing


def _has_own_words(value: Any) -> bool:
    """Neither inherited nor the signature that a dataclass gives itself."""
    member = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    return bool(member) and not (
        dataclasses.is_dataclass(value) and str(member).startswith(f"{getattr(value, '__name__', '')}(")
    )


def _silent(value: type) -> list[str]:
    own = [(name, inspect.getattr_static(value, name)) for name in dir(value) if not name.startswith("_")]
    functions = [(name, member.fget if isinstance(member, property) else member) for name, member in own]
    return [
        name
        for name, member in functions
        if inspect.isroutine(member)
        and (getattr(member, "__module__", "") or "").startswith("ocean")
        and not _doc(member)
    ]
