"""The stores: the kernel's `Store` protocol on SQLite and on PostgreSQL. They know SQL, but neither clogs nor HTTP.

    shared     what both use: rows to records, refusals, what a claim decides, index ranges of a filter, cursors
    sqlite     one file; every verb is Python code that runs in a transaction
    postgres   any number of instances; every verb that writes is a function in the database
    sql        the tables and statements of both

The rules of a run's state machine are in `ocean.state`. The SQLite store calls them inside its transactions. PostgreSQL
has them a second time, in plpgsql (`sql/postgres/functions`); twin, parity and dice tests compare the two. Read
`ocean.kernel.store` first, then `shared`, then one of the two stores.
"""
