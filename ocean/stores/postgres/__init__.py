"""Ocean on PostgreSQL: any number of instances, one truth.

Whatever changes something is a function in the database, next to its rows (`stores/sql/postgres/functions`). Python
sends JSON and gets JSON:

    verbs ──▶ writing ──▶ sending ──▶ pool ──▶ ocean_write([verb, arguments, request], …)     one statement a group
                 └─claim──▶ sending ──▶ pool ──▶ ocean_claim(ask)                              one statement a batch
    reads ──────────────────────────▶ pool ──▶ a statement each

    writing   what queues up while a group is on its way shares the next
    sending   a token per statement, by which it is found out what became of one whose answer was lost
    pool      connections, and patience with a server that is away
    courier   the same on a thread of its own, for locks that are renewed while a handler blocks the loop
    waking    who waits for a commit hears of it

Writers go one after another, by one lock that is taken first: so the order of the log is the order of commits, there
is no deadlock, and a group does what its items would do one by one. Only a plain claim goes without it, and new runs
that nobody can know of are written before it.
"""
