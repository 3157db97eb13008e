"""What a shipped clog may act upon for whoever made its run: nothing that they could not reach by hand."""

from difflib import get_close_matches

from ocean import InvalidValue, NotGeneric, Tick, UnknownClog


async def check_target(tick: Tick, *, clog_id: str | None = None, run_id: str | None = None) -> None:
    """A clog whose runs are to be created, or a run that is to be signalled, in the session of this tick."""
    if run_id is None:
        await _check_allows(tick, clog_id or "", "create")
        return
    run = await tick.get_run(run_id)
    if run is None or run.session_id != tick.session_id:
        raise InvalidValue(f"target: there is no run {run_id!r} in this session")
    if run.is_ended:
        raise InvalidValue(f"target: run {run_id!r} has ended ({run.status}); create a new one")
    await _check_allows(tick, run.clog_id, "signal")


async def is_there(tick: Tick, run_id: str) -> bool:
    """Whether it can be signalled still. An id that was used again in another session is another run."""
    run = await tick.get_run(run_id)
    return run is not None and not run.is_ended and run.session_id == tick.session_id


async def _check_allows(tick: Tick, clog_id: str, verb: str) -> None:
    known = {clog.clog_id: clog.allows for clog in await tick.list_clogs()}
    if clog_id not in known:
        near = get_close_matches(clog_id, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "no instance on this database has had it"
        raise UnknownClog(f"target: there is no clog {clog_id!r}; {hint}", clog_id=clog_id)
    if verb not in known[clog_id]:
        raise NotGeneric(f"target: clog {clog_id!r} keeps {verb!r} to its own routes and methods", clog_id=clog_id)
