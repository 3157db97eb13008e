-- Plain items: the items of a group that are done in bulk.
--
-- An item is plain if it changes nothing but the rows of its own run. Consecutive plain items of the same verb are
-- computed one by one in memory, by the functions that also handle a single item, and are then written with one
-- statement per table: most of the cost of a small statement is starting it. New runs need no computation; the INSERT
-- statements contain everything.
--
-- This comment is the definition of "plain". Each side decides what it can see:
--
--   create_run      The sender sets `is_plain` (`_is_plain_run` in Python) if the run has an input at most, and an id that
--                   no other process can know. The database checks that its clog is registered and not external
--                   (`ocean_have_internal_clogs`).
--   commit_tick     The sender sets `is_plain` (`_is_plain_commit` in Python) if the outcome is not a retry and the effects
--                   are events and at most one write of the run's own row. The database checks the run
--                   (`ocean_is_plain_commit`), that the run and its row have no turn, that the row is as it was read,
--                   and, if the run ends, that it has no children and no inputs left (`ocean_read_plain_commits`).
--   deliver_signal  The sender always sets `is_plain`. The database checks the run and the signal
--                   (`ocean_is_plain_signal`), and that the signal's id is new (`ocean_signal_plain`).
--   claims          The database alone decides (`ocean_is_plain_claim`).
--
-- An item with a request key is not plain, and a single item is not done in bulk because it would gain nothing.
--
-- A bulk function returns null, before it has written anything, if one of its items is not plain; the items are then
-- performed one by one. Rows are updated by the place (`ctid`) where they were read, under the lock they were read
-- under: no index contains places, so there is only one possible plan. A lookup within a statement selects one row
-- instead of using EXISTS, for which the planner may hash a whole table even where hash joins are off.

-- Returns the arguments of the items from `first` on that the sender marked as plain and that have the same verb.
CREATE OR REPLACE FUNCTION ocean_plain_prefix(items jsonb, first int) RETURNS jsonb[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  verb text := items->first->>0;
  found jsonb[] := '{}';
BEGIN
  WHILE (items->first->1->>'is_plain')::boolean AND items->first->>2 IS NULL AND items->first->>0 = verb LOOP
    found := found || (items->first->1);
    first := first + 1;
  END LOOP;
  RETURN found;
END $$;

-- Performs plain items of one verb. Returns one result per item, or null if one of them is not plain.
CREATE OR REPLACE FUNCTION ocean_perform_plain(verb text, items jsonb[], now bigint) RETURNS json[] LANGUAGE plpgsql AS $$
BEGIN
  RETURN CASE verb
    WHEN 'create_run' THEN ocean_create_plain(items, false, now)
    WHEN 'commit_tick' THEN ocean_commit_plain(items, now)
    WHEN 'deliver_signal' THEN ocean_signal_plain(items, now)
  END;
END $$;

-- Returns whether every new run has a clog that is registered and not external.
CREATE OR REPLACE FUNCTION ocean_have_internal_clogs(new_runs jsonb[]) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN NOT EXISTS (SELECT 1 FROM unnest(new_runs) n WHERE NOT EXISTS (
    SELECT 1 FROM ocean_clogs c WHERE c.clog_id = n->>'clog_id' AND NOT c.external));
END $$;

-- Returns whether the commit of a tick touches only the rows of its run: no keys, no end in progress, no failed attempt
-- to clear, and no parent to notify. In SQL, as is the next one, so that the planner inlines it.
CREATE OR REPLACE FUNCTION ocean_is_plain_commit(r runs, a jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT r.key_count = 0 AND r.ending IS NULL AND r.attempt = 0
    AND (a->'outcome'->>0 NOT IN ('done', 'failed') OR r.parent_run_id IS NULL)
$$;

-- Returns whether a signal goes to a run that has not ended and has no keys, whatever the status of the run.
CREATE OR REPLACE FUNCTION ocean_is_plain_signal(r runs, s jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT r.run_id IS NOT NULL AND r.ended_at IS NULL AND r.ending IS NULL AND r.key_count = 0
    AND NOT coalesce((s->>'if_idle')::boolean, false)
$$;

-- Returns whether a claim of the run writes no event and takes no slot of a key.
CREATE OR REPLACE FUNCTION ocean_is_plain_claim(r runs, now bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN r.status IN ('pending', 'waiting') AND NOT r.tick_open AND r.key_count = 0
    AND ocean_kernel_end(r, now) IS NULL;
END $$;

-- Writes all columns that can change of existing runs, each at the place where it was read. `ocean_with_due_time` must
-- have been applied to the runs.
CREATE OR REPLACE FUNCTION ocean_put_all(changed runs[], places tid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  written bigint;
BEGIN
  UPDATE runs q SET status = r.status, attempt = r.attempt, due_at = r.due_at, last_call = r.last_call,
    ready_at = r.ready_at, wake_at = r.wake_at, wait_until = r.wait_until, locked_by = r.locked_by,
    lock_expires_at = r.lock_expires_at, lock_epoch = r.lock_epoch, tick = r.tick, tick_open = r.tick_open,
    paused = r.paused, ending = r.ending, event_count = r.event_count, inbox_count = r.inbox_count,
    pending_count = r.pending_count, updated_at = r.updated_at, ended_at = r.ended_at, parked_on = r.parked_on,
    parked_at = r.parked_at, leased = r.leased, delayed_by = r.delayed_by, delay_key = r.delay_key,
    end_attempt = r.end_attempt, end_max_attempts = r.end_max_attempts, end_incomplete = r.end_incomplete,
    stop_by = r.stop_by, crash_company = r.crash_company, crash_epoch = r.crash_epoch
  FROM unnest(changed, places) r WHERE q.ctid = r.unnest;
  GET DIAGNOSTICS written = ROW_COUNT;
  IF written <> cardinality(changed) THEN
    RAISE EXCEPTION '% runs must be written once each where they were read, got %', cardinality(changed), written;
  END IF;
END $$;

-- Returns the run with the columns that are derived from the others: when it is due, and whether its call is the last
-- one.
CREATE OR REPLACE FUNCTION ocean_with_due_time(r runs) RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF r.ended_at IS NOT NULL THEN
    r.due_at := NULL;
    r.last_call := false;
    RETURN r;
  END IF;
  r.due_at := ocean_due_at(r);
  r.last_call := ocean_is_last_call(r);
  RETURN r;
END $$;
