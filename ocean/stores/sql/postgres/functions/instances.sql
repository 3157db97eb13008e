-- Registered instances, and releasing the locks of one whose process is gone.

-- Returns whether `a` describes this process; facts that are unknown are equal.
CREATE OR REPLACE FUNCTION ocean_is_process(a jsonb, boot_id text, pid_namespace text, pid bigint, process_start bigint)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (boot_id, pid_namespace, pid, process_start) IS NOT DISTINCT FROM
    (a->>'boot_id', a->>'pid_namespace', (a->>'pid')::bigint, (a->>'process_start')::bigint);
END $$;

-- Records an instance. An id that two processes use describes neither of them.
CREATE OR REPLACE FUNCTION ocean_register_instance(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  unseen text;
BEGIN
  FOR unseen IN SELECT i.instance_id FROM ocean_instances i WHERE i.seen_at < now - (a->>'unseen_ms')::bigint
    ORDER BY i.seen_at LIMIT (a->>'most_forgotten')::bigint LOOP
    IF NOT EXISTS (SELECT FROM ocean_runs_held(unseen)) THEN
      DELETE FROM ocean_instances i WHERE i.instance_id = unseen;
    END IF;
  END LOOP;
  INSERT INTO ocean_instances AS i (instance_id, boot_id, pid_namespace, pid, process_start, longest_lock_ms, started_at, seen_at)
  VALUES (a->>'instance_id', a->>'boot_id', a->>'pid_namespace', (a->>'pid')::bigint, (a->>'process_start')::bigint,
    (a->>'longest_lock_ms')::bigint, now, now)
  ON CONFLICT (instance_id) DO UPDATE SET started_at = excluded.started_at, seen_at = excluded.seen_at,
    longest_lock_ms = greatest(i.longest_lock_ms, excluded.longest_lock_ms),
    boot_id = CASE WHEN ocean_is_process(a, i.boot_id, i.pid_namespace, i.pid, i.process_start)
      THEN i.boot_id END;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ocean_delete_instance(a jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM ocean_instances i WHERE i.instance_id = a->>'instance_id'
    AND ocean_is_process(a, i.boot_id, i.pid_namespace, i.pid, i.process_start);
  RETURN FOUND;
END $$;

-- Returns the ids of the runs that an instance has locked, found by clog: locks have no index, which every claim would
-- pay for. A worker's leases are not an instance's.
CREATE OR REPLACE FUNCTION ocean_runs_held(by_instance text) RETURNS SETOF text LANGUAGE plpgsql STABLE ROWS 10 AS $$
DECLARE
  in_clog text;
BEGIN
  FOR in_clog IN SELECT c.clog_id FROM ocean_clogs c ORDER BY c.clog_id LOOP
    RETURN QUERY SELECT r.run_id FROM runs r WHERE r.clog_id = in_clog AND r.status = 'active'
      AND r.locked_by = by_instance AND NOT r.leased ORDER BY r.clog_id, r.status, r.created_at, r.run_id;
  END LOOP;
END $$;

-- Lets the locks of an instance expire now, and returns how many those were.
CREATE OR REPLACE FUNCTION ocean_release_instance(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  id text;
  r runs;
  released bigint := 0;
BEGIN
  IF NOT ocean_delete_instance(a) THEN
    RETURN to_json(0);
  END IF;
  FOR id IN SELECT * FROM ocean_runs_held(a->>'instance_id') LOOP
    -- It may have been committed or claimed since the search.
    SELECT * INTO r FROM runs u
    WHERE u.run_id = id AND u.status = 'active' AND u.locked_by = a->>'instance_id' AND NOT u.leased FOR UPDATE;
    IF FOUND THEN
      r := ocean_lock_released(r, now);
      PERFORM ocean_put(r);
      released := released + 1;
    END IF;
  END LOOP;
  RETURN to_json(released);
END $$;

CREATE OR REPLACE FUNCTION ocean_read_instance(wanted text) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT row_to_json(i) FROM ocean_instances i WHERE i.instance_id = wanted);
END $$;

-- Returns the instances in a place ({boot_id, pid_namespace}, or null for all), last seen first.
CREATE OR REPLACE FUNCTION ocean_read_instances(place jsonb, most bigint) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF place->>'boot_id' IS NULL THEN
    RETURN (SELECT json_agg(row_to_json(f)) FROM (SELECT * FROM ocean_instances i ORDER BY i.seen_at DESC LIMIT most) f);
  END IF;
  RETURN (SELECT json_agg(row_to_json(f)) FROM (
    SELECT * FROM ocean_instances i
    WHERE i.boot_id = place->>'boot_id' AND i.boot_id IS NOT NULL AND i.pid_namespace = place->>'pid_namespace'
    ORDER BY i.boot_id DESC, i.pid_namespace DESC, i.seen_at DESC LIMIT most) f);
END $$;
