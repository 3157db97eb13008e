"""State: the records of Ocean and the rules that decide about them. Pure; imports nothing else of Ocean.

A **run** is a row; its status is the queue. This package defines the row, what may happen to it, and every error.

            signal, timer, child             claim                    commit
    idle ─────────────────────▶ pending ──────────────▶ active ─────────────────▶ idle
    waiting ── time, signal ──▶    ▲                       │  ok, with a timer ──▶ waiting
                                   │ continue, retry       │  wait ──────────────▶ waiting
                                   └───────────────────────┤  done ──────────────▶ done    (final)
                                                           └  failed, spent ─────▶ failed  (final)

Read the files in this order:

1. `records`: runs, inputs, ticks, events, API keys. `outcomes`: what a handler may return. `effects`: what it changes.
2. `transitions`: the state machine, from a run to its next state. `ends`: how a run ends. `suspects`: what a crash
   costs the runs that were at work. `backoff`: when a failed attempt is repeated.
   `retry_as_new`: the run that repeats a failed one.
3. `eligibility`: whether a run may be claimed, why not, and which due run is claimed first.
4. `counters`: totals, rates and quotas. `attributes` and `filters`: how runs and events are found.
5. `values`: the JSON that can be stored. `ids`, `clock`: chance and time as arguments. `redact`: hiding secrets.
6. `instances`: which process holds a lock. `tracebacks`: where an exception was raised.
7. `dry_run_result`: what a dry run returns. `errors`: every error, with its code.

The SQLite store calls these functions inside its transactions. The PostgreSQL store has the rules of `transitions`,
`ends`, `suspects`, `eligibility`, `counters` and `backoff` in plpgsql too, and tests keep the two equal.
"""
