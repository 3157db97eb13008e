"""The kernel decides. It knows no SQL, no HTTP and no wall clock.

A **run** is a row; its status is the queue. A poke (`advance`) claims the rows that are due, calls each owning
clog once (a **tick**) and commits everything the call read, wrote, said and decided in one transaction.

            signal, timer, child             claim                    commit
    idle ─────────────────────▶ pending ──────────────▶ active ─────────────────▶ idle
    waiting ── time, signal ──▶    ▲                       │  ok, with a timer ──▶ waiting
                                   │ continue, retry       │  wait ──────────────▶ waiting
                                   └───────────────────────┤  done ──────────────▶ done    (final)
                                                           └  failed, spent ─────▶ failed  (final)

What holds, and why:

* Nothing acknowledged is lost. A signal is a row of the inbox before its sender gets an answer, and is marked
  consumed only by the commit of the tick that had it. A tick's number and inputs are fixed at its first claim.
* Nothing committed happens twice. A claim raises the run's epoch; every write of a tick carries it, and under an
  older one changes nothing. A holder that was paused for an hour commits nothing.
* A crash is not special. A lock that lapses is claimed like any due row, and counts as a failed attempt.
* Anyone can see why. `eligibility.holds` is what the claim asks and what `explain` shows.
* Waiting costs nothing. `due_at` is one indexed column, a pure function of the row; its minimum is when to come back.
  A run behind a full concurrency key is parked: it has none until the commit that frees a slot.

Where things are: `transitions` is the state table, `eligibility` and `lanes` decide who is claimed, `advancing` is the
loop, `tick` what a clog is handed, `read_before_write` the ledger of its rows, `counters` what it may take, `leasing`
the work of those outside, `rehearsing` the dry run, `finding` and `bulk` which runs are meant and one verb for many,
`store` what a database must do, `observing` and `poke_sources` what is counted of it all, for others to show.
On failure: a handler that raises costs an attempt; a lost lock cancels it; a conflict on a row calls it again.
"""
