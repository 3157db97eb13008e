-- The inbox: how inputs arrive. Claims assign them to ticks, and commits consume them.

-- Numbers and stores one input. The caller changes the run's status.
CREATE OR REPLACE FUNCTION ocean_append_input(r runs, now bigint, kind text, body text, available_at bigint,
  actor text DEFAULT NULL, caused_by text DEFAULT NULL, event_seq bigint DEFAULT NULL, timer text DEFAULT NULL,
  signal_id text DEFAULT NULL, body_hash text DEFAULT NULL, status_then text DEFAULT NULL)
RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  i ocean_inbox;
BEGIN
  r.inbox_count := r.inbox_count + 1;
  r.pending_count := r.pending_count + 1;
  i := ocean_input_row(r, now, kind, body, available_at, actor, caused_by, event_seq, timer, signal_id, body_hash,
    status_then);
  INSERT INTO ocean_inbox VALUES (i.*);
  RETURN r;
END $$;

-- Returns the row of the input that the run has counted last.
CREATE OR REPLACE FUNCTION ocean_input_row(r runs, now bigint, kind text, body text, available_at bigint,
  actor text DEFAULT NULL, caused_by text DEFAULT NULL, event_seq bigint DEFAULT NULL, timer text DEFAULT NULL,
  signal_id text DEFAULT NULL, body_hash text DEFAULT NULL, status_then text DEFAULT NULL)
RETURNS ocean_inbox LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN ROW(r.run_id, r.inbox_count, kind, body, body_hash, signal_id, timer, actor, caused_by, available_at, now, event_seq,
    status_then, NULL, NULL)::ocean_inbox;
END $$;

-- Returns the receipt of an earlier signal with the same id, or null.
CREATE OR REPLACE FUNCTION ocean_earlier_signal(id text, s jsonb) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  first ocean_inbox;
BEGIN
  IF s->>'signal_id' IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT * INTO first FROM ocean_inbox i WHERE i.run_id = id AND i.signal_id = s->>'signal_id';
  IF first.number IS NOT NULL AND first.body_hash IS DISTINCT FROM s->>'body_hash' THEN
    PERFORM ocean_refuse('signal_id_reused', json_build_object('run_id', id, 'signal_id', s->'signal_id'));
  END IF;
  RETURN CASE WHEN first.number IS NOT NULL THEN
    json_build_array(id, first.number, first.status_then, first.event_seq) END;
END $$;

-- Appends a signal, from outside or from a tick, to the inbox of a run that has not ended.
CREATE OR REPLACE FUNCTION ocean_append_signal(r runs, s jsonb, now bigint, caused_by text) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  available_at bigint := greatest((s->>'deliver_at')::bigint, now);
BEGIN
  PERFORM ocean_refuse_if_ended(r);
  IF (s->>'if_idle')::boolean AND r.status <> 'idle' THEN
    PERFORM ocean_refuse('run_busy', json_build_object('run_id', r.run_id, 'status', r.status, 'locked_by', r.locked_by,
      'lock_expires_at', r.lock_expires_at));
  END IF;
  r := ocean_input_arrived(r, available_at, now);
  r := ocean_event(r, ocean_origin(now, s->>'actor', caused_by), 'run.signalled',
    ocean_signal_payload(r.inbox_count + 1, s, available_at, r.status));
  RETURN ocean_append_input(r, now, 'signal', s->>'body', available_at, s->>'actor', ocean_last_event(r),
    currval('ocean_cursor'), signal_id => s->>'signal_id', body_hash => s->>'body_hash', status_then => r.status);
END $$;

CREATE OR REPLACE FUNCTION ocean_signal_payload(number bigint, s jsonb, available_at bigint, status text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN json_build_object('number', number, 'kind', 'signal', 'signal_id', s->'signal_id', 'available_at', available_at,
    'status', status)::text;
END $$;

CREATE OR REPLACE FUNCTION ocean_deliver_signal(s jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_run(s->>'run_id');
  receipt json := ocean_earlier_signal(r.run_id, s);
BEGIN
  IF receipt IS NOT NULL THEN
    RETURN receipt;
  END IF;
  r := ocean_append_signal(r, s, now, NULL);
  PERFORM ocean_save(r);
  RETURN json_build_array(r.run_id, r.inbox_count, r.status, currval('ocean_cursor'));
END $$;

-- Sets a timer: a named entry that becomes an input at its time. It replaces one of the same name that has not fired.
CREATE OR REPLACE FUNCTION ocean_set_timer(r runs, t jsonb, o ocean_origin) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  at bigint := greatest((t->>'at')::bigint, o.now);
BEGIN
  r.pending_count := r.pending_count - ocean_drop_timer(r.run_id, t->>'name');
  r := ocean_event(r, o, 'timer.set',
    json_build_object('timer', t->'name', 'at', at, 'number', r.inbox_count + 1)::text);
  RETURN ocean_append_input(r, o.now, 'timer', t->>'body', at, caused_by => ocean_last_event(r), timer => t->>'name');
END $$;

CREATE OR REPLACE FUNCTION ocean_cancel_timer(r runs, t jsonb, o ocean_origin) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  dropped bigint := ocean_drop_timer(r.run_id, t->>'name');
BEGIN
  IF dropped > 0 THEN
    r.pending_count := r.pending_count - dropped;
    r := ocean_event(r, o, 'timer.cancelled', json_build_object('timer', t->'name')::text);
  END IF;
  RETURN r;
END $$;

-- Deletes a timer that has not fired, and returns how many were deleted. One whose tick has begun stays.
CREATE OR REPLACE FUNCTION ocean_drop_timer(id text, name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  dropped bigint;
BEGIN
  DELETE FROM ocean_inbox i WHERE i.run_id = id AND i.timer = name AND i.assigned_tick IS NULL;
  GET DIAGNOSTICS dropped = ROW_COUNT;
  RETURN dropped;
END $$;

-- Returns when the first unassigned input becomes available.
CREATE OR REPLACE FUNCTION ocean_next_input_at(id text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT i.available_at FROM ocean_inbox i WHERE i.run_id = id AND i.assigned_tick IS NULL
    ORDER BY i.available_at, i.number LIMIT 1);
END $$;
