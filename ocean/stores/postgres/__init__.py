"""Ocean on PostgreSQL: any number of instances, one truth.

A unit of work is the same function that runs on SQLite. Here it runs on a workspace: a private SQLite database in
memory that holds copies of the rows the unit needs, and no others.

    fetch      one statement reads all that the unit is expected to need, in one snapshot, with a seal of each answer
    decide     the unit runs on the copies. What it needs besides is fetched, and it runs again from the beginning
    commit     one statement takes the writers' lock, compares the seals, writes the rows that the unit has changed
               and numbers its events. If a seal is broken nothing is written, and the unit looks again

So the state machine is asked in one place for both databases, no transaction is open while Python thinks, nobody
waits for a lock for longer than another's statement takes, and with a single lock there is no deadlock. Commits of
concurrent units travel as one group, each whole or not at all.
"""
