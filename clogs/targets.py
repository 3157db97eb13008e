"""Check the target of a shipped clog: a run may only reach what its creator could reach directly."""

from difflib import get_close_matches

from ocean import InvalidValue, NotGeneric, Tick, UnknownClog


async def check_target(tick: Tick, *, clog_id: str | None = None, run_id: str | None = None) -> None:
    """Check that runs of `clog_id` may be created, or that `run_id` in this session may be signalled."""
    if run_id is None:
        await _check_allows(tick, clog_id or "", "create")
        return
    run = await tick.get_run(run_id)
    if run is None or run.session_id != tick.session_id:
        raise InvalidValue(f"target: there is no run {run_id!r} in this session")
    if run.is_ended:
        raise InvalidValue(f"target: run {run_id!r} has ended ({run.status}); name a run that has not")
    await _check_allows(tick, run.clog_id, "signal")


async def can_be_signalled(tick: Tick, run_id: str) -> bool:
    """Return whether the run can still be signalled. A run of another session with the same id does not count."""
    run = await tick.get_run(run_id)
    return run is not None and not run.is_ended and run.session_id == tick.session_id


async def _check_allows(tick: Tick, clog_id: str, verb: str) -> None:
    known = {clog.clog_id: clog.allows for clog in await tick.list_clogs()}
    if clog_id not in known:
        near = get_close_matches(clog_id, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "no process has registered it in this database"
        raise UnknownClog(f"target: there is no clog {clog_id!r}; {hint}", clog_id=clog_id)
    if verb not in known[clog_id]:
        raise NotGeneric(
            f"target: clog {clog_id!r} allows {verb!r} only through its own routes and methods", clog_id=clog_id
        )
