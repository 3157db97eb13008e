"""Virtual time and simulated processes, for Ocean's own tests.

`virtual_loop` is an event loop whose time and order a seed decides; read it first. `processes` can be paused, blocked
and killed on it, `virtual_clock` is the clock of one process, and `inline_database` is SQLite without threads, with
faults.
"""
