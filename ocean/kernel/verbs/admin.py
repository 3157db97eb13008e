"""Verbs on clogs, tools and sessions."""

from typing import Any

from ocean.clog.clog import Clog, Registry
from ocean.kernel.arguments import optional_id, request_of
from ocean.kernel.instances import Instances
from ocean.kernel.store import Store
from ocean.state.records import GENERIC_VERBS, ClogRecord
from ocean.state.values import checked_id
from ocean.tools.builtin import ToolSpec
from ocean.tools.registry import ToolFormat, described


class AdminVerbs:
    _store: Store
    _registry: Registry
    instances: Instances

    async def start(self) -> None:
        """Register this instance and its clogs in the database. An instance without clogs writes nothing."""
        if not list(self._registry):
            return
        await self.instances.start()
        await self._store.register_clogs(
            [
                ClogRecord(
                    clog.clog_id,
                    clog.version,
                    clog.has_on_end,
                    has_handler=clog.handler is not None,
                    external=clog.external,
                    takes_all_inputs=clog.takes_all_inputs,
                    allows=_allowed(clog),
                    end_retry=clog.end_retry,
                    cancel_grace_ms=clog.cancel_grace_ms,
                )
                for clog in self._registry
            ]
        )

    @property
    def clogs(self) -> tuple[Clog, ...]:
        """The clogs of this instance."""
        return tuple(self._registry)

    async def list_clogs(self) -> list[ClogRecord]:
        """Return every clog that an instance has ever registered."""
        return await self._store.list_clogs()

    async def allowed_verbs(self, clog_id: str) -> tuple[str, ...] | None:
        """Return what the clog allows the generic routes and commands; None if it was never registered."""
        if clog_id in self._registry:
            return _allowed(self._registry.get(clog_id))
        return next((clog.allows for clog in await self.list_clogs() if clog.clog_id == clog_id), None)

    async def pause_clog(self, clog_id: str, *, actor: str | None = None, request_key: str | None = None) -> ClogRecord:
        """Pause all runs of a clog, on every instance."""
        request = request_of(request_key, "pause_clog", checked_id(clog_id, "clog_id"))
        return await self._store.set_clog_paused(clog_id, True, optional_id(actor, "actor"), request)

    async def resume_clog(
        self, clog_id: str, *, actor: str | None = None, request_key: str | None = None
    ) -> ClogRecord:
        """Resume the runs of a paused clog."""
        request = request_of(request_key, "resume_clog", checked_id(clog_id, "clog_id"))
        return await self._store.set_clog_paused(clog_id, False, optional_id(actor, "actor"), request)

    def list_tools(self, clog_id: str | None = None) -> list[ToolSpec]:
        """Return the tools of this instance, the built-in ones first; or those that the clog can invoke by name."""
        toolset = self._registry.toolset
        return toolset.specs() if clog_id is None else toolset.usable(self._registry.get(clog_id))

    def tool_schemas(self, format: ToolFormat = "openai", *, clog_id: str | None = None) -> list[dict[str, Any]]:
        """Return the tools that can be invoked here, in the form that a model's API takes."""
        specs = (spec for spec in self.list_tools(clog_id) if spec.input is not None and spec.denied is None)
        return [described(spec, format) for spec in specs]

    async def delete_session(self, session_id: str, *, actor: str | None = None, request_key: str | None = None) -> int:
        """Delete a session with all its runs and rows. Returns the number of runs deleted. Events stay."""
        request = request_of(request_key, "delete_session", checked_id(session_id, "session_id"))
        return await self._store.delete_session(session_id, optional_id(actor, "actor"), request)


def _allowed(clog: Clog) -> tuple[str, ...]:
    return tuple(verb for verb in GENERIC_VERBS if verb in clog.allows)
