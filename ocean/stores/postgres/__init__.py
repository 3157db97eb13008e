"""The PostgreSQL store: any number of instances on one database.

Every verb that writes is a function in the database, next to its rows (`stores/sql/postgres/functions`); the rules of
`ocean.state.transitions` are there a second time, in plpgsql. Python sends JSON and gets JSON. Every verb that only
reads gets its rows in one statement, and Python decides what they mean, with the same functions as on SQLite.

    verbs ──▶ batches ──▶ exactly_once ──▶ connection ──▶ ocean_write([verb, arguments, request], …)   one per group
                 └─claim──▶ exactly_once ──▶ connection ──▶ ocean_claim(ask)                           one per claim
    reads ───────────────────────────────▶ connection ──▶ ocean_read(verb, arguments)                  one each

Read `store` first (the verbs that write, except `claims` and `commits`), then `reads` and `listing`, then `client/`.
`migrate` creates the tables and functions; `inspection` reads facts about a server for `ocean doctor`.

Writers run one after another, under one lock that each takes first. So the order of the log is the order of commits,
there is no deadlock, and a group has the same effect as its verbs one by one. Only a plain claim runs without that
lock, and rows of new runs that no other process can know of are written before it is taken.
"""
