-- Runs: read under a row lock, changed in a variable, written once. Their events, and how they are shown.

-- Null if there is none. Whoever will write it must have it locked: a plain claim asks nobody else.
CREATE OR REPLACE FUNCTION ocean_find(id text) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs;
BEGIN
  SELECT * INTO r FROM runs WHERE run_id = id FOR UPDATE;
  RETURN r;
END $$;

CREATE OR REPLACE FUNCTION ocean_run(id text) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_find(id);
BEGIN
  IF r.run_id IS NULL THEN
    PERFORM ocean_refuse('run_not_found', json_build_object('run_id', id));
  END IF;
  RETURN r;
END $$;

-- A run at work is nobody's but a writer's, so it need not be locked: whoever finds that it must wait has changed nothing,
-- and wakes nobody.
CREATE OR REPLACE FUNCTION ocean_find_unlocked(id text) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs;
BEGIN
  SELECT * INTO r FROM runs WHERE run_id = id;
  RETURN r;
END $$;

CREATE OR REPLACE FUNCTION ocean_run_under_lock(id text, epoch bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_find_unlocked(id);
BEGIN
  IF NOT ocean_is_held(r, epoch) THEN
    PERFORM ocean_refuse('lock_lost', json_build_object('run_id', id, 'epoch', epoch));
  END IF;
  RETURN r;
END $$;

-- Everything about a run that can change.
CREATE OR REPLACE FUNCTION ocean_put(r runs) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE runs SET status = r.status, attempt = r.attempt, due_at = ocean_due_at(r), last_call = ocean_is_last_call(r),
    ready_at = r.ready_at, wake_at = r.wake_at, wait_until = r.wait_until, locked_by = r.locked_by,
    lock_expires_at = r.lock_expires_at, lock_epoch = r.lock_epoch, tick = r.tick, tick_open = r.tick_open,
    paused = r.paused, ending = r.ending, event_count = r.event_count, inbox_count = r.inbox_count,
    pending_count = r.pending_count, updated_at = r.updated_at, ended_at = r.ended_at, parked_on = r.parked_on,
    parked_at = r.parked_at, leased = r.leased, delayed_by = r.delayed_by, delay_key = r.delay_key
  WHERE run_id = r.run_id;
END $$;

-- Write a run. One with concurrency keys takes, frees or waits for slots when `ocean_settle_keys` settles them.
CREATE OR REPLACE FUNCTION ocean_save(r runs) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF r.key_count > 0 THEN
    PERFORM ocean_note_unsettled(r.run_id, (SELECT to_jsonb(before) FROM runs before WHERE run_id = r.run_id));
  END IF;
  PERFORM ocean_put(r);
END $$;

-- Append to a run's log. The event's id is the run's and its count, its cursor the sequence's current value.
CREATE OR REPLACE FUNCTION ocean_event(r runs, o ocean_origin, type text, payload text, clog_id text DEFAULT NULL)
RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  e events;
BEGIN
  r.event_count := r.event_count + 1;
  e := ocean_event_row(r, nextval('ocean_cursor'), o, type, payload, clog_id);
  INSERT INTO events VALUES (e.*);
  RETURN r;
END $$;

-- The event that the run has counted last. One expression: each that a function has is prepared in every transaction.
CREATE OR REPLACE FUNCTION ocean_event_row(r runs, seq bigint, o ocean_origin, type text, payload text,
  clog_id text DEFAULT NULL) RETURNS events LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN ROW(seq, o.now, r.session_id, r.run_id, r.event_count, o.tick, o.call, coalesce(clog_id, r.clog_id), type, payload,
    o.actor, r.correlation_id, o.caused_by)::events;
END $$;

-- Append an event that no run has.
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

-- A run with all that its readers see.
CREATE OR REPLACE FUNCTION ocean_shown(r runs) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ocean_shown_with(r,
    (SELECT d FROM ocean_run_details d WHERE d.run_id = r.run_id),
    (SELECT json_agg(json_build_array(b.name, b.value) ORDER BY b.name) FROM ocean_attributes b WHERE b.run_id = r.run_id),
    CASE WHEN r.key_count > 0 THEN (
      SELECT json_agg(json_build_array(k.key, k.hold) ORDER BY k.place) FROM ocean_run_keys k
      WHERE k.run_id = r.run_id) END);
END $$;

-- The same in a statement that has looked up the rest for many.
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

CREATE OR REPLACE FUNCTION ocean_save_error(id text, said text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ocean_run_details SET error = said WHERE run_id = id AND error IS DISTINCT FROM said;
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
