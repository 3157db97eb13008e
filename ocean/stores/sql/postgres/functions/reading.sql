-- Reads. One call is one snapshot.

-- Returns the time and what was found. Nothing is sorted that an index has in order; where several indexes could serve,
-- rows are compared and ordered by all columns of the intended one.
CREATE OR REPLACE FUNCTION ocean_read(verb text, given jsonb) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
  now bigint := ocean_now();
BEGIN
  IF ocean_needs_plan_settings() THEN
    RETURN ocean_read_planned(verb, given);
  END IF;
  RETURN json_build_object('now', now, 'found', CASE verb
    WHEN 'agenda' THEN ocean_read_agenda(now)
    WHEN 'api_key' THEN ocean_read_api_key(given->>'key_id')
    WHEN 'api_keys' THEN ocean_read_api_keys(given->>'after', (given->>'limit')::bigint)
    WHEN 'clogs' THEN ocean_read_clogs()
    WHEN 'counter' THEN ocean_read_counter(given->>'key')
    WHEN 'due_inputs' THEN ocean_read_due_inputs(given->>'run_id', (given->>'limit')::bigint, now)
    WHEN 'event_bounds' THEN ocean_read_event_bounds()
    WHEN 'failed_run' THEN ocean_read_failed_run(given->>'run_id', given->>'key')
    WHEN 'holder' THEN ocean_read_holder(given->>'clog_id', given->>'session_id', given->>'dedupe_key')
    WHEN 'instance' THEN ocean_read_instance(given->>'instance_id')
    WHEN 'instances' THEN ocean_read_instances(given->'place', (given->>'limit')::bigint)
    WHEN 'inputs' THEN ocean_read_inputs(given->>'run_id', (given->>'after')::bigint, (given->>'limit')::bigint)
    WHEN 'key' THEN ocean_read_key(given->>'key')
    WHEN 'keys' THEN ocean_read_keys(given->>'after', (given->>'limit')::bigint)
    WHEN 'preview' THEN ocean_read_preview(given->>'run_id', given->'most_inputs', now)
    WHEN 'request' THEN ocean_read_request(given->>'key')
    WHEN 'rows' THEN ocean_read_rows(given)
    WHEN 'run' THEN ocean_read_run(given->>'run_id')
    WHEN 'standing' THEN ocean_read_standing(given->>'run_id')
    WHEN 'standing_of_lease' THEN ocean_read_standing_of_lease(given->>'lease_hash')
    WHEN 'step' THEN ocean_read_step(given->>'run_id', (given->>'tick')::bigint, given->>'name')
    WHEN 'survey' THEN ocean_read_survey(given->>'run_id')
    WHEN 'ticks' THEN ocean_read_ticks(given->>'run_id', (given->>'after')::bigint, (given->>'limit')::bigint)
    WHEN 'web_session' THEN ocean_read_web_session(given->>'hash', now)
  END);
END $$;

-- Runs a statement that Python has built for a list or a feed, by the same rules. Its values are `$1`.
CREATE OR REPLACE FUNCTION ocean_walk(statement text, given jsonb) RETURNS SETOF json LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF ocean_needs_plan_settings() THEN
    RETURN QUERY SELECT * FROM ocean_walk_planned(statement, given);
    RETURN;
  END IF;
  RETURN QUERY EXECUTE statement USING given;
END $$;

-- Returns the clogs that have runs, in one session or in all, by one probe each.
CREATE OR REPLACE FUNCTION ocean_clogs_with_runs(in_session text DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql STABLE ROWS 10 AS $$
DECLARE
  last text := '';
BEGIN
  LOOP
    IF in_session IS NULL THEN
      SELECT r.clog_id INTO last FROM runs r WHERE r.clog_id > last ORDER BY r.clog_id LIMIT 1;
    ELSE
      -- Only one index has this order. With an equality, the planner might choose another.
      SELECT r.clog_id INTO last FROM runs r
      WHERE (r.session_id, r.clog_id) > (in_session, last) AND r.session_id <= in_session
      ORDER BY r.session_id, r.clog_id LIMIT 1;
    END IF;
    EXIT WHEN last IS NULL;
    RETURN NEXT last;
  END LOOP;
END $$;

-- Returns the lanes (clog, priority) that have entries in the due index, with the first due time of each.
CREATE OR REPLACE FUNCTION ocean_lanes() RETURNS TABLE (clog_id text, priority smallint, first_due_at bigint)
LANGUAGE sql STABLE ROWS 10 AS $$
  WITH RECURSIVE lanes AS (
    (SELECT r.clog_id, r.priority, r.due_at FROM runs r WHERE r.due_at IS NOT NULL
     ORDER BY r.clog_id, r.priority, r.due_at LIMIT 1)
    UNION ALL
    SELECT following.* FROM lanes CROSS JOIN LATERAL (
      SELECT r.clog_id, r.priority, r.due_at FROM runs r
      WHERE r.due_at IS NOT NULL AND (r.clog_id, r.priority) > (lanes.clog_id, lanes.priority)
      ORDER BY r.clog_id, r.priority, r.due_at LIMIT 1) following)
  SELECT * FROM lanes
$$;

-- Returns what is due: for each lane the number of runs, up to 1,000; for each paused clog its last ticks, which a
-- pause does not hold back; and when the next run is overdue.
CREATE OR REPLACE FUNCTION ocean_read_agenda(now bigint) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN json_build_object(
    'lanes', (SELECT json_agg(json_build_array(l.clog_id, l.first_due_at, (
      SELECT count(*) FROM (SELECT FROM runs r WHERE r.due_at IS NOT NULL
        AND (r.clog_id, r.priority) >= (l.clog_id, l.priority)
        AND (r.clog_id, r.priority, r.due_at) <= (l.clog_id, l.priority, now)
        ORDER BY r.clog_id, r.priority, r.due_at LIMIT 1000) due))) FROM ocean_lanes() l),
    'paused', (SELECT json_object_agg(c.clog_id, json_build_array(
      (SELECT r.due_at FROM runs r WHERE r.clog_id = c.clog_id AND r.ending IS NOT NULL AND r.due_at IS NOT NULL
       ORDER BY r.clog_id, r.due_at LIMIT 1),
      (SELECT count(*) FROM (SELECT FROM runs r
        WHERE r.clog_id = c.clog_id AND r.ending IS NOT NULL AND r.due_at <= now
        ORDER BY r.clog_id, r.due_at LIMIT 1000) due)))
      FROM ocean_clogs c WHERE c.paused),
    'owed', least(
      (SELECT r.deadline_at FROM runs r WHERE r.deadline_at IS NOT NULL AND r.ended_at IS NULL AND r.ending IS NULL
       ORDER BY r.deadline_at LIMIT 1),
      (SELECT r.lock_expires_at FROM runs r WHERE r.last_call ORDER BY r.lock_expires_at LIMIT 1),
      (SELECT r.lock_expires_at FROM runs r WHERE r.leased AND NOT r.paused ORDER BY r.lock_expires_at LIMIT 1)));
END $$;

CREATE OR REPLACE FUNCTION ocean_read_run(wanted text) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT ocean_shown(r) FROM runs r WHERE r.run_id = wanted);
END $$;

CREATE OR REPLACE FUNCTION ocean_read_survey(wanted text) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT json_build_object(
      'run', row_to_json(ocean_as_if_noted(r)),
      'clog', (SELECT row_to_json(c) FROM ocean_clogs c WHERE c.clog_id = r.clog_id),
      'full_key', ocean_full_key(r))
    FROM runs r WHERE r.run_id = wanted);
END $$;

-- Returns everything that decides about a claim of one run. `most_inputs` limits the inputs of a tick for each clog.
CREATE OR REPLACE FUNCTION ocean_read_preview(wanted text, most_inputs jsonb, now bigint) RETURNS json
LANGUAGE plpgsql STABLE AS $$
DECLARE
  run runs;
  inputs json;
BEGIN
  SELECT * INTO run FROM runs r WHERE r.run_id = wanted;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF run.tick_open AND run.stop_by IS NULL THEN
    SELECT json_agg(row_to_json(f) ORDER BY f.available_at, f.number) INTO inputs FROM (
      SELECT * FROM ocean_inbox i
      WHERE i.consumed_tick IS NULL AND i.assigned_tick IS NOT NULL
        AND (i.run_id, i.assigned_tick) >= (run.run_id, run.tick)
        AND (i.run_id, i.assigned_tick) <= (run.run_id, run.tick)
      ORDER BY i.run_id, i.assigned_tick) f;
  ELSE
    SELECT json_agg(row_to_json(d) ORDER BY d.available_at, d.number) INTO inputs FROM (
      SELECT * FROM ocean_inbox i
      WHERE i.run_id = run.run_id AND i.assigned_tick IS NULL AND i.available_at <= now
      ORDER BY i.run_id, i.available_at, i.number LIMIT coalesce((most_inputs->>run.clog_id)::bigint, 0)) d;
  END IF;
  RETURN json_build_object(
    'survey', ocean_read_survey(run.run_id),
    'shown', ocean_shown(run),
    'tick', (SELECT row_to_json(t) FROM ocean_ticks t
      WHERE (t.run_id, t.tick) >= (run.run_id, run.tick) AND (t.run_id, t.tick) <= (run.run_id, run.tick)
      ORDER BY t.run_id, t.tick),
    'inputs', coalesce(inputs, '[]'));
END $$;

-- Returns the holder of a dedupe key, and what decides whether it still holds the key.
CREATE OR REPLACE FUNCTION ocean_read_holder(of_clog text, in_session text, wanted text) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (
    SELECT json_build_object('run_id', d.run_id, 'expires_at', d.expires_at, 'debounced', d.debounced,
      'body_hash', (SELECT w.body_hash FROM ocean_run_details w WHERE w.run_id = d.run_id),
      'run', CASE WHEN d.debounced THEN (SELECT row_to_json(r) FROM runs r WHERE r.run_id = d.run_id) END)
    FROM ocean_dedupe d WHERE d.clog_id = of_clog AND d.session_id = in_session AND d.dedupe_key = wanted);
END $$;

-- Returns the version and value of a storage row, or null.
CREATE OR REPLACE FUNCTION ocean_read_row(address jsonb) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
  stored record := ocean_row(address);
BEGIN
  RETURN CASE WHEN stored.version > 0 THEN json_build_array(stored.version, stored.value) END;
END $$;

-- Returns single rows, holders of dedupe keys with their rows, all rows of earlier ticks, and the newest ticks with
-- rows.
CREATE OR REPLACE FUNCTION ocean_read_rows(given jsonb) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
  of_run text := given->>'run_id';
  of_clog text := given->>'clog_id';
BEGIN
  RETURN json_build_object(
    'rows', (SELECT json_agg(ocean_read_row(k.address) ORDER BY k.place)
      FROM jsonb_array_elements(given->'keys') WITH ORDINALITY k (address, place)),
    'holders', (SELECT json_agg(json_build_array(h.holder,
        ocean_read_row(jsonb_build_array('run', of_clog, NULL, h.holder->>'run_id'))) ORDER BY h.place)
      FROM (SELECT ocean_read_holder(of_clog, given->>'session_id', k.dedupe_key) AS holder, k.place
        FROM jsonb_array_elements_text(given->'dedupe_keys') WITH ORDINALITY k (dedupe_key, place)) h),
    'ticks', (SELECT json_agg(json_build_array(s.tick, s.row_id, s.version, s.value) ORDER BY s.tick, s.row_id)
      FROM jsonb_array_elements_text(given->'ticks') t (tick), LATERAL ocean_rows_of_tick(of_run, of_clog, t.tick::bigint) s),
    'history', (SELECT json_agg(json_build_array(s.tick, s.row_id, s.value) ORDER BY s.tick, s.row_id)
      FROM ocean_newest_ticks(of_run, of_clog, (given->>'history')::bigint) t,
        LATERAL ocean_rows_of_tick(of_run, of_clog, t) s));
END $$;

-- A separate function, so that no plan starts with all rows of a run.
CREATE OR REPLACE FUNCTION ocean_rows_of_tick(of_run text, of_clog text, wanted bigint) RETURNS SETOF ocean_storage_tick
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY SELECT * FROM ocean_storage_tick s WHERE s.run_id = of_run AND s.clog_id = of_clog AND s.tick = wanted;
END $$;

-- Returns the newest ticks that have rows, by one probe each.
CREATE OR REPLACE FUNCTION ocean_newest_ticks(of_run text, of_clog text, most bigint) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
  last bigint := 9223372036854775807;
BEGIN
  FOR place IN 1..coalesce(most, 0) LOOP
    SELECT s.tick INTO last FROM ocean_storage_tick s
    WHERE s.run_id = of_run AND s.clog_id = of_clog AND s.tick < last ORDER BY s.tick DESC LIMIT 1;
    EXIT WHEN last IS NULL;
    RETURN NEXT last;
  END LOOP;
END $$;

-- Returns what is needed to repeat a failed run, and the stored result of the same request.
CREATE OR REPLACE FUNCTION ocean_read_failed_run(wanted text, request text) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN json_build_object(
    'request', (SELECT row_to_json(q) FROM ocean_requests q WHERE q.request_key = request),
    'run', (SELECT row_to_json(r) FROM runs r WHERE r.run_id = wanted),
    'details', (SELECT row_to_json(d) FROM ocean_run_details d WHERE d.run_id = wanted),
    'attributes', (SELECT coalesce(json_agg(json_build_array(b.name, b.value) ORDER BY b.name), '[]')
      FROM ocean_attributes b WHERE b.run_id = wanted),
    'keys', (SELECT coalesce(json_agg(json_build_array(k.key, k.hold) ORDER BY k.place), '[]')
      FROM ocean_run_keys k WHERE k.run_id = wanted),
    'input', (SELECT i.body FROM ocean_inbox i WHERE i.run_id = wanted AND i.number = 1 AND i.kind = 'created'));
END $$;
