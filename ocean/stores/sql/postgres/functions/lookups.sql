-- Reads of one or two tables by key. Only `ocean_read` calls them; its plan settings apply to them.

CREATE OR REPLACE FUNCTION ocean_read_clogs() RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT json_agg(row_to_json(c) ORDER BY c.clog_id) FROM ocean_clogs c);
END $$;

-- Returns null if there is no such run.
CREATE OR REPLACE FUNCTION ocean_read_ticks(of_run text, after bigint, most bigint) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM runs r WHERE r.run_id = of_run) THEN
    RETURN NULL;
  END IF;
  RETURN coalesce((SELECT json_agg(row_to_json(f)) FROM (
    SELECT * FROM ocean_ticks t WHERE t.run_id = of_run AND t.tick > after
    ORDER BY t.run_id, t.tick LIMIT most) f), '[]');
END $$;

-- Returns null if there is no such run.
CREATE OR REPLACE FUNCTION ocean_read_inputs(of_run text, after bigint, most bigint) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM runs r WHERE r.run_id = of_run) THEN
    RETURN NULL;
  END IF;
  RETURN coalesce((SELECT json_agg(row_to_json(f)) FROM (
    SELECT * FROM ocean_inbox i WHERE i.run_id = of_run AND i.number > after
    ORDER BY i.run_id, i.number LIMIT most) f), '[]');
END $$;

-- Returns the inputs that are available and unassigned.
CREATE OR REPLACE FUNCTION ocean_read_due_inputs(of_run text, most bigint, now bigint) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN coalesce((SELECT json_agg(row_to_json(f)) FROM (
    SELECT * FROM ocean_inbox i WHERE i.run_id = of_run AND i.assigned_tick IS NULL AND i.available_at <= now
    ORDER BY i.run_id, i.available_at, i.number LIMIT most) f), '[]');
END $$;

CREATE OR REPLACE FUNCTION ocean_read_step(of_run text, in_tick bigint, wanted text) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT to_json(s.result) FROM ocean_steps s WHERE s.run_id = of_run AND s.tick = in_tick AND s.name = wanted);
END $$;

CREATE OR REPLACE FUNCTION ocean_read_counter(wanted text) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT row_to_json(c) FROM ocean_counters c WHERE c.key = wanted);
END $$;

CREATE OR REPLACE FUNCTION ocean_read_request(wanted text) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT row_to_json(r) FROM ocean_requests r WHERE r.request_key = wanted);
END $$;

-- Returns a concurrency key for display. Without a row its limit is 1; parked runs are counted up to 1,000.
CREATE OR REPLACE FUNCTION ocean_read_key(wanted text) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
  usage ocean_keys;
BEGIN
  SELECT * INTO usage FROM ocean_keys k WHERE k.key = wanted;
  RETURN json_build_object('key', wanted, 'limit', coalesce(usage.slots, 1), 'in_use', coalesce(usage.in_use, 0),
    'parked', (SELECT count(*) FROM (SELECT FROM runs r WHERE r.parked_on = wanted
      ORDER BY r.clog_id, r.line LIMIT 1000) parked));
END $$;

CREATE OR REPLACE FUNCTION ocean_read_keys(after text, most bigint) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT json_agg(ocean_read_key(f.key)) FROM (
    SELECT k.key FROM ocean_keys k WHERE k.key > after ORDER BY k.key LIMIT most) f);
END $$;

-- Returns the last event that retention has removed, and the last event that exists. The sequence may be ahead of the
-- committed events.
CREATE OR REPLACE FUNCTION ocean_read_event_bounds() RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT json_build_array(f.seq, greatest(f.seq, (SELECT e.seq FROM events e ORDER BY e.seq DESC LIMIT 1)))
    FROM ocean_log_floor f WHERE f.id = 1);
END $$;

CREATE OR REPLACE FUNCTION ocean_read_api_keys(after text, most bigint) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT json_agg(row_to_json(f)) FROM (
    SELECT * FROM ocean_api_keys k WHERE k.key_id > after ORDER BY k.key_id LIMIT most) f);
END $$;

CREATE OR REPLACE FUNCTION ocean_read_api_key(wanted text) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT row_to_json(k) FROM ocean_api_keys k WHERE k.key_id = wanted);
END $$;

-- Returns the key of a web session that has not expired.
CREATE OR REPLACE FUNCTION ocean_read_web_session(wanted text, now bigint) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT ocean_read_api_key(w.key_id) FROM ocean_web_sessions w WHERE w.hash = wanted AND w.expires_at > now);
END $$;

-- Returns the session and the clog of a run, and what its clog allows. Selects the whole row: another index contains
-- these few columns, and the planner would prefer to scan it while the table is small.
CREATE OR REPLACE FUNCTION ocean_read_standing(wanted text) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
  r runs;
BEGIN
  SELECT * INTO r FROM runs q WHERE q.run_id = wanted;
  RETURN (
    SELECT json_build_object('run_id', r.run_id, 'session_id', r.session_id, 'clog_id', r.clog_id, 'allows', c.allows)
    FROM ocean_clogs c WHERE c.clog_id = r.clog_id);
END $$;

CREATE OR REPLACE FUNCTION ocean_read_standing_of_lease(wanted text) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT ocean_read_standing(l.run_id) FROM ocean_leases l WHERE l.lease_hash = wanted);
END $$;
