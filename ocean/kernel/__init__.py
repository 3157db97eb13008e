"""The kernel: the loop that runs ticks, and the verbs of `Ocean`. It uses no SQL, no HTTP and no wall clock.

A poke (`advance`) claims the runs that are due, calls the clog of each once (a **tick**), and commits everything that
the call read, wrote, emitted and decided in one transaction. `ocean.state` has the rules; read it first.

What is guaranteed, and why:

* Nothing acknowledged is lost. A signal is a row of the inbox before its sender gets a response, and only the commit of
  the tick that got it marks it as consumed. A tick's number and inputs are fixed at its first claim.
* Nothing committed happens twice. A claim raises the run's epoch; every write of a tick carries its epoch, and a write
  under an older one changes nothing. A process that was suspended for an hour commits nothing.
* A crash is not special. A run whose lock has expired is claimed like any due run. The crash is a failed attempt if the
  run was at work alone; runs that crashed together are called apart (`probation`) until the culprit is known.
* An end is not special. The last tick of a run that is cancelled is repeated like any tick, and a step in flight may
  finish first.
* Every wait can be explained. The claim and `explain` use the same rules (`eligibility.holds`).
* Waiting costs nothing. `due_at` is one indexed column, a pure function of the row; its minimum is when to poke next.
  A run behind a full concurrency key is parked: it has no `due_at` until the commit that frees a slot.

On failure: a handler that raises costs an attempt, a lost lock cancels the handler, and a conflict on a row repeats
the call.

Read the files in this order:

1. `store/`: the verbs that a database must offer, with their rules.
2. `kernel`, then `verbs/`: what `Ocean` offers. `arguments`, `new_runs` and `run_query` check what callers pass.
3. `coordinator`: when this process pokes. `advance`: the loop of a poke. `tick_run`: one claimed tick, from its call to
   its commit, with the `runtime` of its instance. `locks`: renewing locks. `probation`: calls after a crash.
   `instances`: processes that are gone. `shutdown`: an orderly stop.
4. `tick`, with `tick_facts` and `run_tools`: what a handler is called with. `call_context`: what its calls share.
   `invoke`: calling the handler. `rows`: reading and writing rows. `steps`, `step_records`, `streaming`: what is
   stored before the commit.
5. `direct_calls`: calls without a tick. `dry_run`: a call without a commit.
6. `metrics`, `poke_sources` and `tick_log`: what is counted and logged.
"""
