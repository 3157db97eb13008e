-- Leases: claims of external workers, found by the hash of a secret id.

-- Returns the request for leases as the claim that it is, or a refusal.
CREATE OR REPLACE FUNCTION ocean_lease_ask(ask jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
  clog ocean_clogs;
BEGIN
  SELECT * INTO clog FROM ocean_clogs c WHERE c.clog_id = ask->>'clog_id';
  IF clog.clog_id IS NULL THEN
    RETURN jsonb_build_object('refused', 'unknown_clog', 'facts', jsonb_build_object('clog_id', ask->'clog_id',
      'names', (SELECT coalesce(jsonb_agg(c.clog_id ORDER BY c.clog_id), '[]') FROM ocean_clogs c)));
  ELSIF NOT clog.external THEN
    RETURN jsonb_build_object('refused', 'not_leased', 'facts', jsonb_build_object('clog_id', clog.clog_id));
  END IF;
  RETURN ask || jsonb_build_object('limit', jsonb_array_length(ask->'lease'), 'clogs', jsonb_build_object(clog.clog_id,
    jsonb_build_object('lock_ms', ask->'lease_ms', 'version', clog.version, 'takes_all_inputs', clog.takes_all_inputs)));
END $$;

CREATE OR REPLACE FUNCTION ocean_add_lease(r runs, ask jsonb, terms jsonb, hash text, now bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO ocean_leases (lease_hash, run_id, epoch, tick, call, worker_id, version, lease_ms, row_version, claimed_at)
  SELECT hash, r.run_id, r.lock_epoch, r.tick, t.calls, r.locked_by, t.version, (terms->>'lock_ms')::bigint,
    coalesce((SELECT s.version FROM ocean_storage_run s WHERE s.run_id = r.run_id AND s.clog_id = r.clog_id), 0), now
  FROM ocean_ticks t WHERE t.run_id = r.run_id AND t.tick = r.tick;
END $$;

CREATE OR REPLACE FUNCTION ocean_lease(hash text) RETURNS ocean_leases LANGUAGE plpgsql AS $$
DECLARE
  lease ocean_leases;
BEGIN
  SELECT * INTO lease FROM ocean_leases l WHERE l.lease_hash = hash;
  IF NOT FOUND THEN
    PERFORM ocean_refuse('no_such_lease');
  END IF;
  RETURN lease;
END $$;

CREATE OR REPLACE FUNCTION ocean_leased_run(lease ocean_leases) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_find(lease.run_id);
BEGIN
  IF NOT ocean_is_held(r, lease.epoch) THEN
    PERFORM ocean_refuse('lease_lost',
      json_build_object('run_id', lease.run_id, 'worker_id', lease.worker_id, 'status', r.status));
  END IF;
  RETURN r;
END $$;

-- Extends a lease that still holds, appends the worker's events, and returns the new expiry time.
CREATE OR REPLACE FUNCTION ocean_renew_lease(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  lease ocean_leases := ocean_lease(a->>'lease_hash');
  r runs := ocean_leased_run(lease);
  o ocean_origin;
  event jsonb;
BEGIN
  o := ROW(now, lease.tick, lease.call, lease.worker_id, (
    SELECT t.caused_by FROM ocean_ticks t WHERE t.run_id = r.run_id AND t.tick = lease.tick))::ocean_origin;
  FOR event IN SELECT jsonb_array_elements(a->'events') LOOP
    r := ocean_event(r, o, event->>0, event->>1);
  END LOOP;
  r.lock_expires_at := greatest(now + coalesce((a->>'lease_ms')::bigint, lease.lease_ms), r.lock_expires_at);
  PERFORM ocean_save(r);
  RETURN to_json(r.lock_expires_at);
END $$;

CREATE OR REPLACE FUNCTION ocean_release_lease(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  lease ocean_leases := ocean_lease(a->>'lease_hash');
  r runs := ocean_leased_run(lease);
BEGIN
  RETURN ocean_give_back(jsonb_build_object('run_id', r.run_id, 'epoch', lease.epoch, 'tick', lease.tick), now);
END $$;

-- Commits the leased tick under the fence, and returns [run, tick, status]. A repeated request gets the first result.
CREATE OR REPLACE FUNCTION ocean_complete_lease(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  lease ocean_leases := ocean_lease(a->>'lease_hash');
  r runs;
  done json;
  commit jsonb;
BEGIN
  IF lease.answer IS NOT NULL THEN
    IF lease.body_hash <> a->>'body_hash' THEN
      PERFORM ocean_refuse('lease_completed', json_build_object('run_id', lease.run_id));
    END IF;
    RETURN json_build_array(lease.run_id, lease.tick, lease.answer::json);
  END IF;
  r := ocean_leased_run(lease);
  commit := jsonb_build_object('run_id', r.run_id, 'epoch', lease.epoch, 'clog_id', r.clog_id, 'tick', lease.tick,
    'call', lease.call, 'outcome', a->'outcome', 'effects', ocean_lease_effects(r, lease, a), 'contested', '[]'::jsonb,
    'instance_id', lease.worker_id, 'version', lease.version, 'claimed_at', lease.claimed_at);
  done := ocean_commit_tick(commit, now);
  IF done->'behind' IS NOT NULL THEN
    RETURN done;
  END IF;
  UPDATE ocean_leases l SET body_hash = a->>'body_hash', answer = (done->'committed')::text
  WHERE l.lease_hash = lease.lease_hash;
  RETURN json_build_array(r.run_id, lease.tick, done->'committed');
END $$;

CREATE OR REPLACE FUNCTION ocean_lease_effects(r runs, lease ocean_leases, a jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  at jsonb := jsonb_build_array('run', r.clog_id, '', r.run_id, 0, '');
  key text := concat_ws(chr(31), 'run', r.clog_id, '', r.run_id, '0', '');
  stored record := ocean_row(at);
  read bigint := coalesce((a->>'row_version')::bigint, lease.row_version);
  effects jsonb;
BEGIN
  IF a->'outcome'->>0 = 'retry' THEN
    RETURN '{}';
  END IF;
  effects := jsonb_build_object('events',
    (SELECT coalesce(jsonb_agg(e.value || to_jsonb(r.clog_id) ORDER BY e.place), '[]')
     FROM jsonb_array_elements(a->'events') WITH ORDINALITY e(value, place)));
  IF NOT (a->>'writes_row')::boolean THEN
    RETURN effects;
  ELSIF stored.version <> read THEN
    PERFORM ocean_refuse('row_changed',
      json_build_object('run_id', r.run_id, 'read', read, 'version', stored.version, 'text', stored.value));
  END IF;
  RETURN effects || jsonb_build_object('writes', jsonb_build_array(
    jsonb_build_object('at', at, 'key', key, 'version', read, 'text', a->'row')));
END $$;
