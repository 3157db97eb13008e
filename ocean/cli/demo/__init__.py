"""`ocean demo`: a worker process is killed in the middle of a tick, another one finishes the runs, the log is checked.

Read `demo` for the sequence of events, `clog` for what the runs do, `worker` for the process that is killed, and
`checks` for what is verified at the end. `screen` prints.
"""
