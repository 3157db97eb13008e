"""Transactions on SQLite: a write-back cache between the store's verbs and one file.

Every verb of the store is a function of a `Unit`. It runs whole, in one transaction, and never awaits. Most of what a
verb writes stays in memory until the end of the transaction that it shares with other verbs, and what that transaction
has written is remembered for the next ones.

    event loop           store.commit_tick(…)   store.create_run(…)   …                     store.get_run(…)
                                   │                    │                                          │
    database             queue of units; it leaves after two rounds of the loop that add no unit,  │  reader
                         or at 256 units, and not while a transaction is in flight                 │  one snapshot for
                                   │  writer thread                                                │  all reads of one
    group_commit         BEGIN IMMEDIATE ── unit, unit, … ── claim of what they made due           │  round of the loop
                                   │                                                               │  reader thread,
    unit_of_work         Unit: its moment in time, runs it has read and changed, its events        │  second connection
                                   │  flush()                                                      │
    transaction          ┌─────────┴──────────────────────────────────┐                            │
    write_buffer         │ own buffer ──accept()──▶ accepted buffer   │      cache                 │
                         └─────────┬──────────────────────────────────┘      open ticks, clogs,    │
                                   │  write(): table by table, many          sessions, last cursor,│
                                   │  rows per statement ──────learn()─────▶ "are there turns?"    │
                                   ▼                                         outlives transactions │
    connection           SQLite file, write-ahead log, COMMIT with fsync ◀─────────────────────────┘

**When the buffers are written.** At the end of the transaction; before a statement that is not buffered; and before a
read that could see a buffered row. A read that sees the rows of one key only (`KEYED`) leaves the buffers alone if
neither has that key, and `query_stored` never writes them. If a unit's own buffer is written before the unit is
accepted, it is written after `SAVEPOINT unit`.

**What the cache holds.** Only what this connection has read or written inside its own transactions. A unit on the
reader has an empty cache of its own.

**When the cache is dropped.**

- Another connection has committed: each transaction, once it has the write lock, compares `PRAGMA data_version` with
  the last one. A difference empties the cache.
- This connection has changed rows outside these transactions, or has rolled some back: `total_changes` differs from its
  value after the last commit. This empties the cache.
- The transaction fails, in a statement or in its COMMIT: it is rolled back, and the cache is emptied. Then each unit
  runs again in a transaction of its own, so that only the one at fault fails. If the file was locked, none runs again.
- A unit is refused. With a savepoint it is rolled back to it, and the cache is emptied. Without one, its buffer is
  dropped and the cache stays: nothing of the unit has reached it.
- A statement is executed that is not buffered: it could have changed anything, so the cache is emptied.
- A unit's own buffer is written while the unit may still be refused: the open ticks of the runs in it are removed.
- A run is written that is no longer active: its open tick is removed. A run with a parent is written: the parent's open
  tick is no longer known to be childless.
- More than 10,000 sessions are known: the sessions are emptied.

Read `database`, `group_commit`, `transaction`, `write_buffer` and `cache`, in that order; then `unit_of_work`, which is
what the verbs use.
"""
