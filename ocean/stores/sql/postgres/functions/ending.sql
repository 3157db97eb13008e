-- Ends of runs. Every end goes through `ocean_end_one`.

-- Ends a run: drops its timers, logs undelivered inputs, notifies the parent, writes the last event. The caller ends
-- the children.
CREATE OR REPLACE FUNCTION ocean_end_one(r runs, status text, output text, error text, o ocean_origin,
  is_incomplete boolean DEFAULT false) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  dropped bigint;
BEGIN
  r := ocean_ended(r, status, o.now);
  r.end_incomplete := is_incomplete;
  IF r.pending_count > 0 THEN
    DELETE FROM ocean_inbox i WHERE i.run_id = r.run_id AND i.number = ANY (ARRAY(
      SELECT u.number FROM ocean_unconsumed(r) u WHERE u.timer IS NOT NULL));
    GET DIAGNOSTICS dropped = ROW_COUNT;
    r.pending_count := r.pending_count - dropped;
  END IF;
  DELETE FROM ocean_turns t WHERE t.run_id = r.run_id;
  UPDATE ocean_run_details d SET output = coalesce(ocean_end_one.output, d.output), error = ocean_end_one.error
  WHERE d.run_id = r.run_id;
  r := ocean_log_undelivered(r, o.now);
  IF NOT ocean_notify_parent(r, output, ocean_without_traceback(error), o.now) THEN
    r := ocean_event(r, ocean_origin(o.now), 'signal.undelivered',
      json_build_object('to', r.parent_run_id, 'kind', 'child')::text);
  END IF;
  r := ocean_event(r, o, 'run.' || status, CASE status
    WHEN 'done' THEN '{"output":' || coalesce(output, 'null') || '}'
    ELSE '{"error":' || coalesce(error, 'null') || '}' END);
  PERFORM ocean_save(r);
  RETURN r;
END $$;

-- Returns the inputs that are unassigned, and those that the last two ticks have left: a tick that the run's end
-- interrupted is followed by one more at most. Older ticks have consumed their inputs.
CREATE OR REPLACE FUNCTION ocean_unconsumed(r runs) RETURNS SETOF ocean_inbox LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY SELECT * FROM ocean_inbox i WHERE i.run_id = r.run_id AND i.assigned_tick IS NULL;
  RETURN QUERY SELECT * FROM ocean_inbox i
    WHERE i.run_id = r.run_id AND i.assigned_tick >= r.tick - 1 AND i.consumed_tick IS NULL;
END $$;

CREATE OR REPLACE FUNCTION ocean_log_undelivered(r runs, now bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  count bigint;
  named json;
BEGIN
  IF r.pending_count = 0 THEN
    RETURN r;
  END IF;
  SELECT count(*), json_agg(json_build_object('number', i.number, 'kind', i.kind, 'signal_id', i.signal_id)
      ORDER BY i.number) FILTER (WHERE i.place <= 100) INTO count, named
  FROM (SELECT *, row_number() OVER (ORDER BY number) AS place FROM ocean_unconsumed(r)) i;
  IF count > 0 THEN
    r := ocean_event(r, ocean_origin(now), 'signal.undelivered',
      json_build_object('to', r.run_id, 'count', count, 'inputs', named)::text);
  END IF;
  RETURN r;
END $$;

-- Appends the child's outcome to the inbox of its parent, in the child's last commit. Returns false if the parent has
-- ended.
CREATE OR REPLACE FUNCTION ocean_notify_parent(child runs, output text, error text, now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  parent runs;
  payload json;
BEGIN
  IF child.parent_run_id IS NULL
    OR NOT (SELECT d.notify_parent FROM ocean_run_details d WHERE d.run_id = child.run_id) THEN
    RETURN true;
  END IF;
  parent := ocean_find(child.parent_run_id);
  IF parent.run_id IS NULL OR ocean_is_ended(parent) OR parent.ending IS NOT NULL THEN
    RETURN false;
  END IF;
  parent := ocean_input_arrived(parent, now, now);
  payload := json_build_object('number', parent.inbox_count + 1, 'kind', 'child', 'child_run_id', child.run_id,
    'child_status', child.status, 'status', parent.status);
  parent := ocean_event(parent, ocean_origin(now), 'run.signalled', payload::text);
  parent := ocean_append_input(parent, now, 'child',
    format('{"run_id":%s,"status":"%s","output":%s,"error":%s}', to_json(child.run_id), child.status,
      coalesce(output, 'null'), coalesce(error, 'null')),
    now, caused_by => ocean_last_event(parent), event_seq => currval('ocean_cursor'));
  PERFORM ocean_save(parent);
  RETURN true;
END $$;

-- Ends a run, and the children that must end with their parent, generation after generation.
CREATE OR REPLACE FUNCTION ocean_end_run(r runs, status text, output text, error text, o ocean_origin) RETURNS runs
LANGUAGE plpgsql AS $$
BEGIN
  r := ocean_end_one(r, status, output, error, o);
  PERFORM ocean_end_children(r, o.now);
  RETURN r;
END $$;

CREATE OR REPLACE FUNCTION ocean_end_children(parent runs, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  parents runs[] := ARRAY[parent];
  child_id text;
  child runs;
  error json;
BEGIN
  WHILE cardinality(parents) > 0 LOOP
    parent := parents[1];
    parents := parents[2:];
    PERFORM ocean_settle_keys(now);
    FOR child_id IN
      SELECT c.run_id FROM runs c
      WHERE c.parent_run_id = parent.run_id AND c.status IN ('active', 'idle', 'pending', 'waiting') AND c.ending IS NULL
        AND (SELECT d.on_parent_end FROM ocean_run_details d WHERE d.run_id = c.run_id) = 'cancel'
      ORDER BY c.status, c.created_at, c.run_id
    LOOP
      error := json_build_object('code', 'cancelled', 'message',
        format('its parent %s ended %s', parent.run_id, parent.status), 'details', NULL);
      child := ocean_request_end_of_one(ocean_find(child_id), 'cancel', error::text,
        ocean_origin(now, caused_by => ocean_last_event(parent)));
      IF ocean_is_ended(child) THEN
        parents := parents || child;
      END IF;
    END LOOP;
  END LOOP;
END $$;

-- Ends a run on behalf of the kernel. A clog with `on_end` gets one last tick; if its attempts are used up, the run ends
-- without it.
CREATE OR REPLACE FUNCTION ocean_request_end(r runs, reason text, error text, o ocean_origin) RETURNS runs
LANGUAGE plpgsql AS $$
BEGIN
  r := ocean_request_end_of_one(r, reason, error, o);
  IF ocean_is_ended(r) THEN
    PERFORM ocean_end_children(r, o.now);
  END IF;
  RETURN r;
END $$;

CREATE OR REPLACE FUNCTION ocean_request_end_of_one(r runs, reason text, error text, o ocean_origin) RETURNS runs
LANGUAGE plpgsql AS $$
DECLARE
  clog ocean_clogs;
BEGIN
  IF r.ending IS NOT NULL THEN
    r := ocean_event(r, o, 'run.end_incomplete',
      format('{"reason":"%s","error":%s,"attempts":%s}', r.ending, coalesce(error, 'null'), r.end_attempt));
    RETURN ocean_end_one(r, 'failed', NULL, ocean_stored_error(r.run_id), o, true);
  END IF;
  PERFORM ocean_refuse_if_ended(r);
  error := coalesce(error, ocean_stored_error(r.run_id));
  SELECT * INTO clog FROM ocean_clogs c WHERE c.clog_id = r.clog_id;
  IF NOT coalesce(clog.has_on_end, false) THEN
    RETURN ocean_end_one(r, 'failed', NULL, error, o);
  END IF;
  r := ocean_ending(r, reason, ocean_end_attempts(clog), clog.grace_ms, o.now);
  DELETE FROM ocean_turns t WHERE t.run_id = r.run_id;
  PERFORM ocean_save_error(r.run_id, error);
  r := ocean_event(r, o, 'run.ending', format('{"reason":"%s","error":%s,"status":"%s","stop_by":%s}', reason,
    coalesce(error, 'null'), r.status, coalesce(r.stop_by::text, 'null')));
  PERFORM ocean_save(r);
  RETURN r;
END $$;

-- Returns how many attempts the last ticks of a clog have; null means any number.
CREATE OR REPLACE FUNCTION ocean_end_attempts(clog ocean_clogs) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE WHEN clog.end_retry IS NULL THEN 10 ELSE (clog.end_retry::jsonb->>'max_attempts')::bigint END;
END $$;

-- Calls the last tick again of a run that has ended without it. Its parent is not notified a second time.
CREATE OR REPLACE FUNCTION ocean_retry_end(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_run(a->>'run_id');
  reason text := (SELECT t.reason FROM ocean_ticks t WHERE t.run_id = r.run_id AND t.tick = r.tick);
  clog ocean_clogs;
BEGIN
  SELECT * INTO clog FROM ocean_clogs c WHERE c.clog_id = r.clog_id;
  IF NOT r.end_incomplete OR reason IS NULL OR clog.clog_id IS NULL THEN
    PERFORM ocean_refuse('end_not_incomplete', json_build_object('run_id', r.run_id, 'status', r.status));
  END IF;
  r := ocean_end_retried(r, reason, ocean_end_attempts(clog), now);
  UPDATE ocean_run_details d SET notify_parent = false WHERE d.run_id = r.run_id;
  r := ocean_event(r, ocean_origin(now, a->>'actor'), 'run.ending', format(
    '{"reason":"%s","error":%s,"status":"pending","stop_by":null}', reason,
    coalesce(ocean_stored_error(r.run_id), 'null')));
  PERFORM ocean_save(r);
  PERFORM ocean_settle_keys(now);
  RETURN ocean_shown(r.run_id);
END $$;

CREATE OR REPLACE FUNCTION ocean_stored_error(id text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT d.error FROM ocean_run_details d WHERE d.run_id = id);
END $$;

-- Does what any `advance` must do, whichever clogs it has: overdue ends, and taking back a lease that lapsed.
CREATE OR REPLACE FUNCTION ocean_process_overdue(r runs, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  reason text;
  error json;
BEGIN
  r := ocean_with_crash_noted(r, now);
  reason := ocean_kernel_end(r, now);
  IF reason = 'deadline' AND r.ending IS NULL THEN
    error := json_build_object('code', 'deadline_exceeded', 'message', format('the deadline %s passed', r.deadline_at),
      'details', NULL);
    PERFORM ocean_request_end(r, reason, error::text, ocean_origin(now));
  ELSIF reason IS NOT NULL THEN
    error := json_build_object('code', 'crashed', 'message', format(
        '%s stopped while it worked on tick %s of this run alone; its lock lapsed at %s', r.locked_by, r.tick,
        r.lock_expires_at),
      'details', json_build_object('attempt', ocean_attempts(r) + 1));
    r := ocean_with_attempts(r, ocean_attempts(r) + 1);
    PERFORM ocean_request_end(r, reason, error::text, ocean_origin(now));
  ELSIF ocean_is_lapsed_lease(r, now) THEN
    PERFORM ocean_take_back_lease(r, now);
  END IF;
END $$;

-- Takes a run back from an external worker that stopped renewing: its attempt has failed, and the run is pending again.
CREATE OR REPLACE FUNCTION ocean_take_back_lease(r runs, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  before runs := r;
  t ocean_ticks;
BEGIN
  SELECT * INTO t FROM ocean_ticks k WHERE k.run_id = r.run_id AND k.tick = r.tick;
  r := ocean_lease_lapsed(r, now);
  r := ocean_event(r, ROW(now, t.tick, t.calls, NULL, t.caused_by)::ocean_origin, 'tick.given_back',
    json_build_object('because', 'lease_lapsed', 'attempt', r.attempt, 'status', r.status, 'epoch', before.lock_epoch,
      'instance', before.locked_by)::text);
  PERFORM ocean_save(r);
END $$;
