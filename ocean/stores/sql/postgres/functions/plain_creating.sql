-- Plain creations in bulk: see plain.sql.

-- Creates runs that have nothing but an input. The statements write for all of them what `ocean_new_run`,
-- `ocean_log_creation` and `ocean_append_input` write for one. With `is_early`, `ocean_create_early` has already
-- written the rows of the runs themselves.
CREATE OR REPLACE FUNCTION ocean_create_plain(new_runs jsonb[], is_early boolean, now bigint) RETURNS json[]
LANGUAGE plpgsql AS $$
DECLARE
  cursor bigint := (SELECT c.last_value FROM ocean_cursor c);
BEGIN
  IF NOT ocean_have_internal_clogs(new_runs) THEN
    IF is_early THEN
      RAISE EXCEPTION 'a clog was changed after its new runs were written and before their group had the lock';
    END IF;
    RETURN NULL;
  END IF;
  PERFORM setval('ocean_cursor', cursor + cardinality(new_runs));
  INSERT INTO ocean_sessions (session_id, created_at) SELECT DISTINCT n->>'session_id', now FROM unnest(new_runs) n
  ON CONFLICT DO NOTHING;
  IF NOT is_early THEN
    PERFORM ocean_insert_plain(new_runs, now);
  END IF;
  INSERT INTO events (seq, ts, session_id, run_id, run_seq, clog_id, type, payload, actor, correlation_id)
  SELECT cursor + place, now, n->>'session_id', n->>'run_id', 1, n->>'clog_id', 'run.created',
    ocean_plain_creation_payload(CASE WHEN n->>'input' IS NULL THEN 'idle' ELSE 'pending' END, (n->>'priority')::smallint),
    n->>'actor', coalesce(n->>'correlation_id', n->>'run_id')
  FROM unnest(new_runs) WITH ORDINALITY u(n, place);
  INSERT INTO ocean_inbox (run_id, number, kind, body, actor, caused_by, available_at, created_at, event_seq)
  SELECT n->>'run_id', 1, 'created', n->>'input', n->>'actor', (n->>'run_id') || ':1', now, now, cursor + place
  FROM unnest(new_runs) WITH ORDINALITY u(n, place) WHERE n->>'input' IS NOT NULL;
  -- The creators know everything else about their runs.
  RETURN array_fill(json_build_object('answer', json_build_object('made_at', now)), ARRAY[cardinality(new_runs)]);
END $$;

-- Inserts the rows that belong to the runs alone.
CREATE OR REPLACE FUNCTION ocean_insert_plain(new_runs jsonb[], now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO runs (run_id, session_id, clog_id, correlation_id, priority, status, attempt, max_attempts, due_at, last_call,
    ready_at, lock_epoch, tick, tick_open, paused, event_count, inbox_count, pending_count, created_at, updated_at)
  SELECT n->>'run_id', n->>'session_id', n->>'clog_id', coalesce(n->>'correlation_id', n->>'run_id'),
    (n->>'priority')::smallint, CASE WHEN g.input IS NULL THEN 'idle' ELSE 'pending' END, 0,
    (n->'retry'->>'max_attempts')::bigint, CASE WHEN g.input IS NOT NULL THEN now END, false,
    CASE WHEN g.input IS NOT NULL THEN now END, 0, 0, false, false, 1, (g.input IS NOT NULL)::int,
    (g.input IS NOT NULL)::int, now, now
  FROM unnest(new_runs) n, LATERAL (SELECT n->>'input' AS input OFFSET 0) g;
  PERFORM ocean_insert_details(new_runs);
END $$;

-- Inserts the plain creations at the start of a group before the group has the writers' lock, and returns them. No
-- other process can know of these runs yet, so none waits for their rows. Another process could wait for their
-- sessions: those are inserted under the lock, and the foreign key is checked at commit.
CREATE OR REPLACE FUNCTION ocean_create_early(items jsonb, now bigint) RETURNS jsonb[] LANGUAGE plpgsql AS $$
DECLARE
  new_runs jsonb[] := ocean_plain_prefix(items, 0);
BEGIN
  IF cardinality(new_runs) < 2 OR NOT ocean_have_internal_clogs(new_runs) THEN
    RETURN '{}';
  END IF;
  SET CONSTRAINTS runs_session_id_fkey DEFERRED;
  PERFORM ocean_insert_plain(new_runs, now);
  RETURN new_runs;
EXCEPTION WHEN OTHERS THEN
  -- The item that caused the error is found when the group is performed under the lock.
  RETURN '{}';
END $$;

CREATE OR REPLACE FUNCTION ocean_delete_early(new_runs jsonb[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM runs r WHERE r.run_id = ANY (ARRAY(SELECT n->>'run_id' FROM unnest(new_runs) n));
END $$;
