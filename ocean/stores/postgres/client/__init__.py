"""How the PostgreSQL store talks to the server.

    connection       a pool of connections, and retries while the server is away
    exactly_once     a token per statement, by which the result of a statement is found if its connection was lost
    batches          verbs that are queued while a group is in flight share the next statement
    pending_claims   claims that are sent together with a group
    payloads         the kernel's records as JSON arguments
    reading          one statement per read; `row_batches` shares one between reads of rows
    lock_thread      a thread with its own connection, which renews locks while a handler blocks the event loop
    notifications    noticing commits, of this process and of others
    options          what a database URL may set; `server_clock` is the server's time

Read `connection`, `exactly_once` and `batches` first.
"""
