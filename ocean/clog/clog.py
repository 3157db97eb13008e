"""A clog: an id, a handler for its runs' ticks, and methods that others may call."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from ocean.clog.routes import Errors, Mounts
from ocean.clog.webhooks import Webhook
from ocean.kernel.arguments import checked_choice, checked_count, checked_flag, checked_names
from ocean.state.effects import Scope
from ocean.state.errors import InvalidValue, UnknownClog, UnknownMethod, UnknownWebhook
from ocean.state.names import near_name
from ocean.state.outcomes import Outcome
from ocean.state.records import GenericVerb
from ocean.state.values import checked_id, decode, shown
from ocean.tools.author import Tool, ToolBox
from ocean.tools.credentials import Credentials
from ocean.tools.registry import Toolset, flattened

if TYPE_CHECKING:
    from ocean.flows.flow import Flow
    from ocean.kernel.tick import Tick

Handler = Callable[["Tick"], Awaitable[Outcome] | Outcome]
Method = Callable[..., Any]
H = TypeVar("H", bound=Callable[..., Any])
F = TypeVar("F", bound="Callable[[Flow, Any], Awaitable[Any]]")

DEFAULT_TICK_MS = 300_000


class Clog(Mounts):
    """`tools` lists what the clog may use; by default every tool that stays inside the database. `toolbox` has tools of
    an author's that it may use besides, or the names of such that `Ocean.open` is given.

    `inputs="all"` hands a tick everything that is due instead of one input. `lock_ms` and `tick_ms` override the
    instance's lock time and the time limit of one call. The state models make the rows of a scope typed. The runs of an
    `external` clog are not called here: workers outside lease them with `claim_work`. `generic` is what the generic
    routes and commands may do with its runs: by default everything, or nothing if the clog has routes of its own.
    `errors` words what its routes and webhooks refuse.
    """

    def __init__(
        self,
        clog_id: str,
        *,
        version: str = "1",
        run_state: type[BaseModel] | None = None,
        session_state: type[BaseModel] | None = None,
        global_state: type[BaseModel] | None = None,
        inputs: Literal["one", "all"] = "one",
        tools: Collection[str] | None = None,
        toolbox: Iterable[Tool | ToolBox | str] = (),
        lock_ms: int | None = None,
        tick_ms: int = DEFAULT_TICK_MS,
        external: bool = False,
        generic: Collection[GenericVerb] | None = None,
        errors: Errors | None = None,
    ) -> None:
        super().__init__(generic, errors)
        self.clog_id = checked_id(clog_id, "clog_id", 128)
        self.version = checked_id(version, "version", 128)
        checked_choice(inputs, "inputs", ("one", "all"))
        checked_count(tick_ms, "tick_ms", least=1)
        if lock_ms is not None:
            checked_count(lock_ms, "lock_ms", least=3)
        self.takes_all_inputs = inputs == "all"
        self.external = checked_flag(external, "external")
        self.tools = None if tools is None else frozenset(checked_names(tools, "tools"))
        in_box = flattened(toolbox, "toolbox")
        self.own_tools = [each for each in in_box if isinstance(each, Tool)]
        self.toolbox = frozenset(each.name if isinstance(each, Tool) else each for each in in_box)
        self.lock_ms = lock_ms
        self.tick_ms = tick_ms
        self.models: dict[Scope, type[BaseModel] | None] = {
            "run": run_state,
            "session": session_state,
            "global": global_state,
            "tick": None,
        }
        self.handler: Handler | None = None
        self.end_handler: Handler | None = None
        self.methods: dict[str, Method] = {}
        self.teller: Callable[[Any], str | None] | None = None

    @property
    def has_on_end(self) -> bool:
        """A clog without `on_advance` is never claimed, so its runs end without a last tick."""
        return self.end_handler is not None and self.handler is not None

    def on_advance(self, handler: H) -> H:
        """Register the handler that moves this clog's runs, one tick a call."""
        if self.handler is not None:
            raise InvalidValue(f"clog {self.clog_id!r} has an on_advance handler already")
        self._refuse_if_external("on_advance")
        self.handler = handler
        return handler

    def on_end(self, handler: H) -> H:
        """Register the last tick of a run that the kernel ends: cancelled, past its deadline, out of attempts."""
        if self.end_handler is not None:
            raise InvalidValue(f"clog {self.clog_id!r} has an on_end handler already")
        self._refuse_if_external("on_end")
        self.end_handler = handler
        return handler

    def flow(self, function: F) -> F:
        """Register an async function whose named operations are remembered, as what moves this clog's runs.

        It is both handlers, `on_advance` and `on_end`; the run row is its journal, and a tick is given all that is due.
        """
        # Flows are made of what the kernel has, which knows nothing of them.
        import_module("ocean.flows.handlers").register_flow(self, function)
        return function

    def explains(self, teller: H) -> H:
        """Register a pure function from the run row to what the run waits for: `explain` says it too."""
        if self.teller is not None:
            raise InvalidValue(f"clog {self.clog_id!r} says already what its runs wait for")
        self.teller = teller
        return teller

    def tells_of(self, row: str | None) -> str | None:
        """What a run waits for, by its row. A function that cannot say it must not be what keeps `explain` silent."""
        if self.teller is None or row is None:
            return None
        try:
            return self.teller(self.typed("run", decode(row)))
        except Exception as error:
            return f"its clog could not say what it waits for ({type(error).__name__}: {error})"

    def _refuse_if_external(self, what: str) -> None:
        if self.external:
            raise InvalidValue(
                f"clog {self.clog_id!r} is external: workers do its ticks, it can have no {what} handler"
            )

    def method(self, method: H) -> H:
        """Register a method under its function's name, for `call_clog` and `tick.call`."""
        name = method.__name__
        if name in self.methods:
            raise InvalidValue(f"clog {self.clog_id!r} has a method {name!r} already")
        self.methods[name] = method
        return method

    def find_method(self, name: str) -> Method:
        """The method, or a refusal that names the nearest."""
        if name not in self.methods:
            hint = near_name(name, self.methods)
            raise UnknownMethod(f"clog {self.clog_id!r} has no method {name!r}; {hint}", method=name)
        return self.methods[name]

    def find_webhook(self, name: str) -> Webhook:
        """The webhook, or a refusal that names the nearest."""
        if name not in self.webhooks:
            hint = near_name(name, self.webhooks)
            raise UnknownWebhook(f"clog {self.clog_id!r} has no webhook {name!r}; {hint}", webhook=name)
        return self.webhooks[name]

    def typed(self, scope: Scope, value: Any) -> Any:
        """A row's value as the clog means it: checked against the model it named for this scope, if any."""
        model = self.models[scope]
        if model is None or value is None or isinstance(value, model):
            return value
        try:
            return model.model_validate(value)
        except ValidationError as error:
            count = error.error_count()
            raise InvalidValue(
                f"the {scope} row of clog {self.clog_id!r} does not fit {model.__name__}: {count} errors, "
                f"first at {'.'.join(map(str, error.errors()[0]['loc']))}"
            ) from error


class Registry:
    """The clogs one instance has, and the tools."""

    def __init__(
        self,
        clogs: Iterable[Clog],
        tools: Iterable[Tool | ToolBox] = (),
        deny_tools: Collection[str] = (),
        credentials: Credentials | None = None,
    ) -> None:
        self._clogs: dict[str, Clog] = {}
        if isinstance(clogs, Clog) or not isinstance(clogs, Iterable):
            raise InvalidValue(f"clogs are a list of Clog, got {shown(clogs)}")
        for clog in clogs:
            if not isinstance(clog, Clog):
                raise InvalidValue(f"each of clogs is a Clog, got {shown(clog)}")
            if clog.clog_id in self._clogs:
                raise InvalidValue(f"two clogs are called {clog.clog_id!r}; ids are unique within an instance")
            self._clogs[clog.clog_id] = clog
        brought = [tool for clog in self._clogs.values() for tool in clog.own_tools]
        self.toolset = Toolset([*flattened(tools, "tools"), *brought], deny_tools, credentials)
        for clog in self._clogs.values():
            self.toolset.check_names(clog)

    def __iter__(self) -> Iterator[Clog]:
        return iter(self._clogs.values())

    def __contains__(self, clog_id: object) -> bool:
        return clog_id in self._clogs

    def get(self, clog_id: str) -> Clog:
        if clog_id not in self._clogs:
            hint = near_name(clog_id, self._clogs)
            raise UnknownClog(f"clog {clog_id!r} is not registered here; {hint}", clog_id=clog_id)
        return self._clogs[clog_id]
