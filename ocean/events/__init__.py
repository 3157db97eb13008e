"""Feeds over the append-only log, live and by pages, and the log's retention.

Read in this order:

- `feed`: pages after a cursor, and `follow`, which continues with new events as they are committed.
- `tail`: one reader per process that reads each new commit once and passes its events to all followers.
- `follower`: one feed's end of the tail, and its bounded buffer.
- `watchers`: advance a run while a client watches it.
- `retention`: delete old events, ended runs, stored responses and unused counters.

    commit ──> Tail ──> Follower (state LEVEL) ──> follow() ──> the caller, or at once `take_at_once`
                  └───> Follower (BEHIND, CATCHING_UP): reads pages from the store first

A feed delivers each event after its cursor exactly once and in order. A follower joins the tail before it reads the
past, so no event is lost between the two; one that reads too slowly loses its buffer and reads pages again.
"""
