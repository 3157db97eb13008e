"""Flows: linear code whose named operations are remembered.

A flow is the `on_advance` handler of a clog, and nothing more: no table, no loop, no process of its own. A tick reads
the **journal** (the clog's run row), calls the function from its top, and answers what is known from the journal. At
the first operation that cannot be answered yet, the function is put away, the journal is written, and the tick answers
`Wait`, `Ok` or `Continue`:

    tick ──read the row──▶ call the function ──▶ known? answer it
                                             ──▶ a step? take it, store its result at once, go on
                                             ──▶ must wait? put the function away ──write the row──▶ Wait | Ok
                                             ──▶ it returns ──▶ Done      it fails ──▶ undo, then Failed

Three things make that safe:

- A step's result is stored for the run before the function hears of it (`tick.step(scope="run")`), so a crash between
  two steps repeats neither.
- Every operation has a place, a kind and a name, and all three must be those of the journal. Code that was changed
  under a running flow is found at the first operation that differs; the run is held, and loses nothing.
- What an operation does inside the database (an event, a child, a signal) is in the same commit as its entry.

`journal` is what is remembered, `playing` one call over it, `stepping` a step with its attempts, `waiting` what
must come from elsewhere, `asking` counters and other clogs, `gathering` branches,
`flow` what the function is handed, `undoing` what happens to a flow that fails, `handling` the two handlers, and
`registering` what `@clog.flow` does.
"""
