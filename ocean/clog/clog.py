"""`Clog`: an id, a handler for the ticks of its runs, and methods; and the registry of an instance's clogs."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from ocean.clog.routes import Errors, Mounts
from ocean.clog.webhooks import Webhook
from ocean.kernel.arguments import checked_choice, checked_count, checked_flag, checked_names
from ocean.state.backoff import RetryPolicy
from ocean.state.effects import Scope
from ocean.state.errors import InvalidValue, UnknownClog, UnknownMethod, UnknownWebhook, near_name
from ocean.state.outcomes import Outcome
from ocean.state.records import CANCEL_GRACE_MS, END_RETRY, GenericVerb
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
MOST_GRACE_MS = 86_400_000


class Clog(Mounts):
    """The code of a kind of run.

    `tools` lists the tools that the clog may use; by default all that stay inside the database. `toolbox` has tools of
    authors that it may use in addition, or the names of tools that `Ocean.open` gets.

    `inputs="all"` gives a tick all inputs that are due instead of one. `lock_ms` and `tick_ms` override the lock time
    of the instance and the time limit of one call. `end_retry` is the policy of last ticks (`on_end`): 10 attempts, up
    to a minute apart. When a run at work is cancelled or its deadline passes, a step in flight has `cancel_grace_ms`
    to finish. The state models type the rows of a scope. The runs of an
    `external` clog are not called here: external workers lease them with `claim_work`. `generic` is what the generic
    routes and commands may do with its runs: by default everything, or nothing if the clog has its own routes.
    `errors` formats the errors of its routes and webhooks.
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
        end_retry: RetryPolicy = END_RETRY,
        cancel_grace_ms: int = CANCEL_GRACE_MS,
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
        if not isinstance(end_retry, RetryPolicy):
            raise InvalidValue(f"end_retry must be a RetryPolicy, got {shown(end_retry)}")
        self.end_retry = end_retry
        self.cancel_grace_ms = checked_count(cancel_grace_ms, "cancel_grace_ms", most=MOST_GRACE_MS)
        self.models: dict[Scope, type[BaseModel] | None] = {
            "run": run_state,
            "session": session_state,
            "global": global_state,
            "tick": None,
        }
        self.handler: Handler | None = None
        self.end_handler: Handler | None = None
        self.methods: dict[str, Method] = {}
        self.explainer: Callable[[Any], str | None] | None = None

    @property
    def has_on_end(self) -> bool:
        """Whether a run that the kernel ends gets a last tick. A clog without `on_advance` is never claimed."""
        return self.end_handler is not None and self.handler is not None

    def on_advance(self, handler: H) -> H:
        """Register the handler of this clog's ticks."""
        if self.handler is not None:
            raise InvalidValue(f"clog {self.clog_id!r} must have one on_advance handler, it has one already")
        self._refuse_if_external("on_advance")
        self.handler = handler
        return handler

    def on_end(self, handler: H) -> H:
        """Register the handler of the last tick of a run that is cancelled, past its deadline, or out of attempts."""
        if self.end_handler is not None:
            raise InvalidValue(f"clog {self.clog_id!r} must have one on_end handler, it has one already")
        self._refuse_if_external("on_end")
        self.end_handler = handler
        return handler

    def flow(self, function: F) -> F:
        """Register an async function whose named operations are stored, as the handler of this clog's runs.

        It is both handlers, `on_advance` and `on_end`; the run row is its journal, and a tick gets all due inputs.
        """
        # Imported late: flows use the kernel, and the kernel does not import flows.
        import_module("ocean.flows.handlers").register_flow(self, function)
        return function

    def explains(self, explainer: H) -> H:
        """Register a pure function from the run row to a text: what the run waits for. `explain` shows it."""
        if self.explainer is not None:
            raise InvalidValue(f"clog {self.clog_id!r} must have one explains function, it has one already")
        self.explainer = explainer
        return explainer

    def explain_row(self, row: str | None) -> str | None:
        """Return what a run waits for, by its row. If the function fails, return its error: `explain` must work."""
        if self.explainer is None or row is None:
            return None
        try:
            return self.explainer(self.typed("run", decode(row)))
        except Exception as error:
            return f"its clog could not explain what it waits for ({type(error).__name__}: {error})"

    def _refuse_if_external(self, what: str) -> None:
        if self.external:
            raise InvalidValue(
                f"clog {self.clog_id!r} must not have an {what} handler: it is external, workers do its ticks"
            )

    def method(self, method: H) -> H:
        """Register a method under its function's name, for `call_clog` and `tick.call`."""
        name = method.__name__
        if name in self.methods:
            raise InvalidValue(f"methods of clog {self.clog_id!r} must have unique names, got {name!r} twice")
        self.methods[name] = method
        return method

    def find_method(self, name: str) -> Method:
        """Return the method, or raise an error that names the nearest one."""
        if name not in self.methods:
            hint = near_name(name, self.methods)
            raise UnknownMethod(f"clog {self.clog_id!r} has no method {name!r}; {hint}", method=name)
        return self.methods[name]

    def find_webhook(self, name: str) -> Webhook:
        """Return the webhook, or raise an error that names the nearest one."""
        if name not in self.webhooks:
            hint = near_name(name, self.webhooks)
            raise UnknownWebhook(f"clog {self.clog_id!r} has no webhook {name!r}; {hint}", webhook=name)
        return self.webhooks[name]

    def typed(self, scope: Scope, value: Any) -> Any:
        """Return a row's value as the clog's model for this scope, if it has one."""
        model = self.models[scope]
        if model is None or value is None or isinstance(value, model):
            return value
        try:
            return model.model_validate(value)
        except ValidationError as error:
            count = error.error_count()
            raise InvalidValue(
                f"the {scope} row of clog {self.clog_id!r} must be a {model.__name__}: {count} errors, "
                f"first at {'.'.join(map(str, error.errors()[0]['loc']))}"
            ) from error


class Registry:
    """The clogs and tools of one instance."""

    def __init__(
        self,
        clogs: Iterable[Clog],
        tools: Iterable[Tool | ToolBox] = (),
        deny_tools: Collection[str] = (),
        credentials: Credentials | None = None,
    ) -> None:
        self._clogs: dict[str, Clog] = {}
        if isinstance(clogs, Clog) or not isinstance(clogs, Iterable):
            raise InvalidValue(f"clogs must be a list of Clog, got {shown(clogs)}")
        for clog in clogs:
            if not isinstance(clog, Clog):
                raise InvalidValue(f"each of clogs must be a Clog, got {shown(clog)}")
            if clog.clog_id in self._clogs:
                raise InvalidValue(f"clog ids must be unique within an instance, got {clog.clog_id!r} twice")
            self._clogs[clog.clog_id] = clog
        own = [tool for clog in self._clogs.values() for tool in clog.own_tools]
        self.toolset = Toolset([*flattened(tools, "tools"), *own], deny_tools, credentials)
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
