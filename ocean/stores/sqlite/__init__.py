"""The SQLite store. Every verb of the kernel's `Store` protocol is one unit of work that runs in a transaction.

    store         `SqliteStore`, put together from the groups of verbs below
    run_verbs     runs: creating, signalling, finding, pausing, cancelling and deleting them; clogs; concurrency keys
    claim_verbs   ticks: claims, locks, rows, steps, commits; direct calls; counters
    leasing       claims for external workers
    event_log     reading and trimming the event log
    access        API keys, web sessions, who owns a run, stored results of requests
    engine/       threads, transactions, the write buffer and the cache: read its docstring first

The other files hold the work of the verbs, each about one thing: `claiming`, `committing` and the `effects` of a
commit, `creating` and `delaying`, `inbox`, `ending`, `deleting`, `overdue`, `keys`, `counters`, `storage`, `listing`.
They call the rules in `ocean.state.transitions` and `ocean.state.eligibility` and write what these return.
"""
