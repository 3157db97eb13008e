"""Flows: linear code that survives restarts, because the result of each operation is stored.

A flow is the `on_advance` handler of a clog, and nothing more: it has no table, no loop and no process of its own. A
tick reads the **journal** (the clog's run row) and calls the function from its top. An operation that has an entry in
the journal returns what is stored there. At the first operation that has to wait, the function is suspended, the
journal is written, and the tick returns `Wait`, `Ok` or `Continue`:

    tick ──read the row──▶ call the function ──▶ in the journal? return its result
                                             ──▶ a step? call it, store its result at once, go on
                                             ──▶ must wait? suspend the function ──write the row──▶ Wait | Ok
                                             ──▶ it returns ──▶ Done      it fails ──▶ undo, then Failed

Three rules make that safe:

- The result of a step is stored for the run before the function sees it (`tick.step(scope="run")`), so a crash between
  two steps repeats neither.
- Every operation has a position, a kind and a name, and all three must match the journal. If the code of a running flow
  was changed, the first operation that differs is detected; the run is held, and loses nothing.
- What an operation does inside the database (an event, a child, a signal) is in the same commit as its entry.

Read in this order: `journal` (what is stored), `replay` (one call of the function over the journal), `steps` (a step
with its attempts), `waits` (times, signals, ends of children), `calls` (counters and methods of other clogs),
`parallel` (branches), `flow` (the object that the function gets), `undo` (what happens when a flow fails) and
`handlers` (the two handlers, and what `@clog.flow` does). `errors` are the exceptions of a flow.
"""
