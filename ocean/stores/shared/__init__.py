"""What both stores use. None of it touches a database, except that `waiter` needs an event loop.

    rows           database rows to the kernel's records
    row_rules      decisions about rows that were read: is a key live, who holds a dedupe key
    claim_plan     what a claim of a run would do, and the agenda
    refusals       every refusal of a store, by its code
    index_ranges   from a filter to ranges of an index; `cursors` are positions in them
    waiter         waiting for a result that must not be lost to a cancelled scope

Read `claim_plan` and `index_ranges` first; the others are short.
"""
