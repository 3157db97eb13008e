-- Deleting runs and sessions. Their events stay; only retention removes events, from the oldest on.

-- Deletes a run and all its descendants, and returns how many. A live run is ended first, so that its parent is
-- notified.
CREATE OR REPLACE FUNCTION ocean_delete_tree(id text, actor text, now bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  run_ids text[];
  each text;
  r runs;
BEGIN
  PERFORM ocean_settle_keys(now);
  run_ids := ARRAY(
    WITH RECURSIVE below(run_id, depth) AS (
      SELECT id COLLATE "C", 0
      UNION ALL
      SELECT c.run_id, below.depth + 1 FROM below, LATERAL (
        SELECT q.run_id FROM runs q WHERE q.parent_run_id = below.run_id OFFSET 0) c)
    SELECT b.run_id FROM below b ORDER BY b.depth, b.run_id);
  FOREACH each IN ARRAY run_ids LOOP
    r := ocean_run(each);
    IF NOT ocean_is_ended(r) THEN
      PERFORM ocean_end_run(r, 'failed', NULL, json_build_object('code', 'deleted', 'message',
        format('run %s was deleted', each), 'details', NULL)::text, ocean_origin(now, actor));
    END IF;
  END LOOP;
  FOR place IN REVERSE cardinality(run_ids)..1 LOOP
    r := ocean_run(run_ids[place]);
    PERFORM ocean_event(r, ROW(now, nullif(r.tick, 0), NULL, actor, NULL)::ocean_origin, 'run.deleted',
      json_build_object('status', r.status)::text);
    DELETE FROM runs WHERE run_id = r.run_id;
  END LOOP;
  RETURN cardinality(run_ids);
END $$;

CREATE OR REPLACE FUNCTION ocean_delete_session(session text, actor text, now bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  id text;
  deleted bigint := 0;
BEGIN
  PERFORM ocean_settle_keys(now);
  FOR id IN SELECT run_id FROM runs WHERE session_id = session ORDER BY clog_id, status, created_at, run_id LOOP
    IF (ocean_find(id)).run_id IS NOT NULL THEN
      deleted := deleted + ocean_delete_tree(id, actor, now);
    END IF;
  END LOOP;
  DELETE FROM ocean_sessions WHERE session_id = session;
  IF FOUND THEN
    PERFORM ocean_append_event(now, 'session.deleted', json_build_object('runs', deleted)::text, session, NULL, actor);
  END IF;
  RETURN deleted;
END $$;

-- Deletes one batch of each kind that is old enough. Returns how many: [events, runs, requests, counters].
CREATE OR REPLACE FUNCTION ocean_sweep(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  batch bigint := (a->>'batch')::bigint;
  deleted_events bigint := 0;
  deleted_runs bigint := 0;
  deleted_requests bigint := 0;
  deleted_counters bigint := 0;
  id text;
BEGIN
  IF a->>'events_before' IS NOT NULL THEN
    deleted_events := ocean_sweep_events((a->>'events_before')::bigint, batch);
  END IF;
  IF a->>'runs_before' IS NOT NULL THEN
    -- Leaves are deleted first; a live child keeps its parents.
    FOR id IN SELECT r.run_id FROM runs r WHERE r.ended_at < (a->>'runs_before')::bigint
        AND NOT EXISTS (SELECT 1 FROM runs c WHERE c.parent_run_id = r.run_id)
      ORDER BY r.ended_at LIMIT batch LOOP
      deleted_runs := deleted_runs + ocean_delete_tree(id, NULL, now);
    END LOOP;
  END IF;
  IF a->>'requests_before' IS NOT NULL THEN
    DELETE FROM ocean_requests WHERE request_key = ANY (ARRAY(SELECT q.request_key FROM ocean_requests q
      WHERE q.created_at < (a->>'requests_before')::bigint ORDER BY q.created_at LIMIT batch));
    GET DIAGNOSTICS deleted_requests = ROW_COUNT;
  END IF;
  DELETE FROM ocean_counters WHERE key = ANY (ARRAY(SELECT c.key FROM ocean_counters c
    WHERE c.expires_at <= now ORDER BY c.expires_at LIMIT batch));
  GET DIAGNOSTICS deleted_counters = ROW_COUNT;
  RETURN json_build_array(deleted_events, deleted_runs, deleted_requests, deleted_counters);
END $$;

-- Deletes the longest prefix of the log that is old enough: an old event behind a newer one stays.
CREATE OR REPLACE FUNCTION ocean_sweep_events(before bigint, batch bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  e record;
  last bigint;
  deleted bigint := 0;
BEGIN
  FOR e IN SELECT seq, ts FROM events ORDER BY seq LIMIT batch LOOP
    EXIT WHEN e.ts >= before;
    last := e.seq;
    deleted := deleted + 1;
  END LOOP;
  IF last IS NOT NULL THEN
    DELETE FROM events WHERE seq <= last;
    UPDATE ocean_log_floor SET seq = greatest(seq, last);
  END IF;
  RETURN deleted;
END $$;
