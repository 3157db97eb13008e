-- Runs: read under a row lock, changed in a variable, written once. Also their events, and how they are returned.

-- Returns the run and locks its row, or null. A writer must lock the row: plain claims do not take the writers' lock.
CREATE OR REPLACE FUNCTION ocean_find(id text) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs;
BEGIN
  SELECT * INTO r FROM runs WHERE run_id = id FOR UPDATE;
  RETURN r;
END $$;

-- As `ocean_find`, but refuses the call if there is no such run.
CREATE OR REPLACE FUNCTION ocean_run(id text) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_find(id);
BEGIN
  IF r.run_id IS NULL THEN
    PERFORM ocean_refuse('run_not_found', json_build_object('run_id', id));
  END IF;
  RETURN r;
END $$;

-- Returns the run without locking its row. Only writers change an active run, and they hold the writers' lock; a commit
-- that must wait for its turn then has changed nothing, and notifies no process.
CREATE OR REPLACE FUNCTION ocean_find_unlocked(id text) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs;
BEGIN
  SELECT * INTO r FROM runs WHERE run_id = id;
  RETURN r;
END $$;

-- Returns the run if its lock is held under this epoch; otherwise the call is refused.
CREATE OR REPLACE FUNCTION ocean_run_under_lock(id text, epoch bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_find_unlocked(id);
BEGIN
  IF NOT ocean_is_held(r, epoch) THEN
    PERFORM ocean_refuse('lock_lost', json_build_object('run_id', id, 'epoch', epoch));
  END IF;
  RETURN r;
END $$;

-- Writes all columns of a run that can change.
CREATE OR REPLACE FUNCTION ocean_put(r runs) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE runs SET status = r.status, attempt = r.attempt, due_at = ocean_due_at(r), last_call = ocean_is_last_call(r),
    ready_at = r.ready_at, wake_at = r.wake_at, wait_until = r.wait_until, locked_by = r.locked_by,
    lock_expires_at = r.lock_expires_at, lock_epoch = r.lock_epoch, tick = r.tick, tick_open = r.tick_open,
    paused = r.paused, ending = r.ending, event_count = r.event_count, inbox_count = r.inbox_count,
    pending_count = r.pending_count, updated_at = r.updated_at, ended_at = r.ended_at, parked_on = r.parked_on,
    parked_at = r.parked_at, leased = r.leased, delayed_by = r.delayed_by, delay_key = r.delay_key,
    end_attempt = r.end_attempt, end_max_attempts = r.end_max_attempts, end_incomplete = r.end_incomplete,
    stop_by = r.stop_by, crash_company = r.crash_company, crash_epoch = r.crash_epoch
  WHERE run_id = r.run_id;
END $$;

-- Writes a run. If it has concurrency keys, `ocean_settle_keys` takes, frees or waits for slots later.
CREATE OR REPLACE FUNCTION ocean_save(r runs) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF r.key_count > 0 THEN
    PERFORM ocean_note_unsettled(r.run_id, (SELECT to_jsonb(before) FROM runs before WHERE run_id = r.run_id));
  END IF;
  PERFORM ocean_put(r);
END $$;

-- Appends an event of a run. Its id is the run's id and event count; its cursor is the current value of the sequence.
CREATE OR REPLACE FUNCTION ocean_event(r runs, o ocean_origin, type text, payload text, clog_id text DEFAULT NULL,
  step text DEFAULT NULL)
RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  e events;
BEGIN
  r.event_count := r.event_count + 1;
  e := ocean_event_row(r, nextval('ocean_cursor'), o, type, payload, clog_id, step);
  INSERT INTO events VALUES (e.*);
  RETURN r;
END $$;

-- Returns the row of the event that the run has counted last. One expression, because PostgreSQL prepares each
-- expression of a function once per transaction.
CREATE OR REPLACE FUNCTION ocean_event_row(r runs, seq bigint, o ocean_origin, type text, payload text,
  clog_id text DEFAULT NULL, step text DEFAULT NULL) RETURNS events LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN ROW(seq, o.now, r.session_id, r.run_id, r.event_count, o.tick, o.call, coalesce(clog_id, r.clog_id), type, payload,
    o.actor, r.correlation_id, o.caused_by, step)::events;
END $$;

-- Appends an event that belongs to no run.
CREATE OR REPLACE FUNCTION ocean_append_event(now bigint, type text, payload text, session_id text, clog_id text, actor text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO events (seq, ts, session_id, clog_id, type, payload, actor)
  VALUES (nextval('ocean_cursor'), now, session_id, clog_id, type, payload, actor);
END $$;

CREATE OR REPLACE FUNCTION ocean_last_event(r runs) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN r.run_id || ':' || r.event_count;
END $$;

CREATE OR REPLACE FUNCTION ocean_origin(now bigint, actor text DEFAULT NULL, caused_by text DEFAULT NULL)
RETURNS ocean_origin LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN ROW(now, NULL, NULL, actor, caused_by)::ocean_origin;
END $$;

-- Returns a run as its readers receive it.
CREATE OR REPLACE FUNCTION ocean_shown(r runs) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ocean_shown_with(r,
    (SELECT d FROM ocean_run_details d WHERE d.run_id = r.run_id),
    (SELECT json_agg(json_build_array(b.name, b.value) ORDER BY b.name) FROM ocean_attributes b WHERE b.run_id = r.run_id),
    CASE WHEN r.key_count > 0 THEN (
      SELECT json_agg(json_build_array(k.key, k.hold) ORDER BY k.place) FROM ocean_run_keys k
      WHERE k.run_id = r.run_id) END);
END $$;

-- The same, for a statement that has looked up the rest for many runs.
CREATE OR REPLACE FUNCTION ocean_shown_with(r runs, d ocean_run_details, attributes json, keys json) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN json_build_object('run', to_json(r),
    'details', json_build_object('output', d.output, 'error', d.error, 'dedupe_key', d.dedupe_key, 'retry_of', d.retry_of),
    'attributes', coalesce(attributes, '[]'), 'keys', coalesce(keys, '[]'));
END $$;

CREATE OR REPLACE FUNCTION ocean_shown(id text) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
  r runs;
BEGIN
  SELECT * INTO r FROM runs WHERE run_id = id;
  RETURN ocean_shown(r);
END $$;

CREATE OR REPLACE FUNCTION ocean_save_error(id text, new_error text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ocean_run_details SET error = new_error WHERE run_id = id AND error IS DISTINCT FROM new_error;
END $$;

-- Returns an error without the traceback of its place, as a parent gets it. As json, not jsonb, which would change
-- numbers and the order of keys in the clog's error.
CREATE OR REPLACE FUNCTION ocean_without_traceback(error text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  place json := error::json->'where';
BEGIN
  IF place->'traceback' IS NULL THEN
    RETURN error;
  END IF;
  RETURN json_build_object('code', error::json->'code', 'message', error::json->'message',
    'details', error::json->'details', 'where', json_build_object('type', place->'type', 'file', place->'file',
      'line', place->'line', 'function', place->'function'))::text;
END $$;

CREATE OR REPLACE FUNCTION ocean_add_session(id text, now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO ocean_sessions (session_id, created_at) VALUES (id, now) ON CONFLICT DO NOTHING;
END $$;

CREATE OR REPLACE FUNCTION ocean_refuse_unknown_clog(id text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ocean_refuse('unknown_clog', json_build_object('clog_id', id,
    'names', (SELECT coalesce(json_agg(c.clog_id ORDER BY c.clog_id), '[]') FROM ocean_clogs c)));
END $$;
