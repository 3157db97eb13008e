-- The verbs of a group.

-- Performs a verb and stores its result for the request, or returns the stored result of an earlier request.
CREATE OR REPLACE FUNCTION ocean_perform(verb text, a jsonb, request jsonb, now bigint) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
  answer json := ocean_stored_answer(request);
BEGIN
  IF answer IS NOT NULL THEN
    RETURN answer;
  END IF;
  CASE verb
    WHEN 'commit_tick' THEN answer := ocean_commit_tick(a, now);
    WHEN 'deliver_signal' THEN answer := ocean_deliver_signal(a, now);
    WHEN 'create_run' THEN answer := ocean_create_run(a, now);
    WHEN 'commit_call' THEN answer := ocean_commit_call(a, now);
    WHEN 'append_streamed' THEN answer := ocean_append_streamed(a, now);
    WHEN 'store_step' THEN answer := ocean_store_step(a, now);
    WHEN 'renew_locks' THEN answer := ocean_renew_locks(a, now);
    WHEN 'give_back' THEN answer := ocean_give_back(a, now);
    WHEN 'take_turn' THEN answer := to_json(ocean_take_turn((ocean_run_under_lock(a->>'run_id', (a->>'epoch')::bigint)).run_id,
      (a->>'epoch')::bigint, a->'keys', now));
    WHEN 'take' THEN answer := ocean_take_once(a, now);
    WHEN 'reset_counter' THEN answer := ocean_reset_counter(a->>'key');
    WHEN 'retry_run' THEN answer := ocean_retry_run(a, now);
    WHEN 'retry_end' THEN answer := ocean_retry_end(a, now);
    WHEN 'call_apart' THEN answer := ocean_call_apart(a, now);
    WHEN 'cancel_run' THEN answer := ocean_cancel_run(a, now);
    WHEN 'pause_run' THEN answer := ocean_pause_run(a, now);
    WHEN 'pause_clog' THEN answer := ocean_pause_clog(a, now);
    WHEN 'set_limit' THEN answer := ocean_set_limit(a, now);
    WHEN 'delete_run' THEN answer := to_json(ocean_delete_tree((ocean_run(a->>'run_id')).run_id, a->>'actor', now));
    WHEN 'delete_session' THEN answer := to_json(ocean_delete_session(a->>'session_id', a->>'actor', now));
    WHEN 'renew_lease' THEN answer := ocean_renew_lease(a, now);
    WHEN 'release_lease' THEN answer := ocean_release_lease(a, now);
    WHEN 'complete_lease' THEN answer := ocean_complete_lease(a, now);
    WHEN 'register_clogs' THEN answer := ocean_register_clogs(a, now);
    WHEN 'register_instance' THEN answer := ocean_register_instance(a, now);
    WHEN 'unregister_instance' THEN answer := to_json(ocean_delete_instance(a));
    WHEN 'release_instance' THEN answer := ocean_release_instance(a, now);
    WHEN 'keep_answer' THEN answer := ocean_keep_first_answer(a, now);
    WHEN 'add_api_key' THEN answer := ocean_add_api_key(a, now);
    WHEN 'revoke_api_key' THEN answer := ocean_revoke_api_key(a->>'key_id', now);
    WHEN 'add_web_session' THEN answer := ocean_add_web_session(a, now);
    WHEN 'end_web_session' THEN answer := ocean_end_web_session(a->>'hash');
    WHEN 'sweep' THEN answer := ocean_sweep(a, now);
  END CASE;
  PERFORM ocean_settle_keys(now);
  PERFORM ocean_keep_answer(request, answer::text, now);
  RETURN answer;
END $$;

-- A request is [key, hash of its body], or null.
CREATE OR REPLACE FUNCTION ocean_stored_answer(request jsonb) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  stored ocean_requests;
BEGIN
  IF request->>0 IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT * INTO stored FROM ocean_requests q WHERE q.request_key = request->>0;
  IF stored.hash <> request->>1 THEN
    PERFORM ocean_refuse('request_key_reused', json_build_object('key', request->0));
  END IF;
  RETURN stored.answer;
END $$;

CREATE OR REPLACE FUNCTION ocean_keep_answer(request jsonb, answer text, now bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF request->>0 IS NOT NULL THEN
    INSERT INTO ocean_requests (request_key, hash, answer, created_at) VALUES (request->>0, request->>1, answer, now);
  END IF;
END $$;

-- Stores the result of a request that is not one transaction. The first result is kept and returned.
CREATE OR REPLACE FUNCTION ocean_keep_first_answer(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  stored text := ocean_stored_answer(a->'request');
BEGIN
  IF stored IS NULL THEN
    PERFORM ocean_keep_answer(a->'request', a->>'answer', now);
  END IF;
  RETURN to_json(coalesce(stored, a->>'answer'));
END $$;

-- A refusal writes nothing, and is not kept for the request key.
CREATE OR REPLACE FUNCTION ocean_take_once(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  answer json := ocean_stored_answer(a->'request');
BEGIN
  IF answer IS NULL THEN
    answer := ocean_take(a->'take', now);
    IF (answer->>0)::boolean THEN
      PERFORM ocean_keep_answer(a->'request', answer::text, now);
    END IF;
  END IF;
  RETURN answer;
END $$;

CREATE OR REPLACE FUNCTION ocean_reset_counter(name text) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM ocean_counters c WHERE c.key = name;
  RETURN to_json(FOUND);
END $$;

-- Extends all locks, and returns the positions of those that are lost, and of those whose runs are ending.
CREATE OR REPLACE FUNCTION ocean_renew_locks(locks jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  lock jsonb;
  until bigint;
  place bigint := 0;
  lost bigint[] := '{}';
  ending bigint[] := '{}';
  stop_by bigint;
  holder text;
  holders text[] := '{}';
BEGIN
  FOR lock IN SELECT jsonb_array_elements(locks) LOOP
    until := now + (lock->>2)::bigint;
    UPDATE runs r SET lock_expires_at = greatest(until, r.lock_expires_at), due_at = least(
      CASE WHEN r.ending IS NULL THEN r.deadline_at END,
      CASE WHEN NOT r.paused OR r.ending IS NOT NULL THEN least(r.stop_by, greatest(until, r.lock_expires_at)) END)
    WHERE r.run_id = lock->>0 AND r.status = 'active' AND r.lock_epoch = (lock->>1)::bigint
    RETURNING r.stop_by, r.locked_by INTO stop_by, holder;
    IF NOT FOUND THEN
      lost := lost || place;
    ELSE
      IF stop_by IS NOT NULL THEN
        ending := ending || place;
      END IF;
      IF holder <> ALL (holders) THEN
        holders := holders || holder;
      END IF;
    END IF;
    place := place + 1;
  END LOOP;
  FOREACH holder IN ARRAY holders LOOP
    UPDATE ocean_instances i SET seen_at = greatest(i.seen_at, now) WHERE i.instance_id = holder;
  END LOOP;
  RETURN json_build_array(lost, ending);
END $$;

CREATE OR REPLACE FUNCTION ocean_append_streamed(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ocean_put(ocean_stream(ocean_run_under_lock(a->>'run_id', (a->>'epoch')::bigint), a, now));
  RETURN NULL;
END $$;

-- Appends the events of a running call. The caller puts the run.
CREATE OR REPLACE FUNCTION ocean_stream(r runs, a jsonb, now bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  tick bigint := (a->>'tick')::bigint;
  o ocean_origin := ROW(now, tick, a->'call', NULL, (
    SELECT t.caused_by FROM ocean_ticks t WHERE t.run_id = r.run_id AND t.tick = (a->>'tick')::bigint))::ocean_origin;
  event jsonb;
BEGIN
  FOR event IN SELECT jsonb_array_elements(a->'events') LOOP
    r := ocean_event(r, o, event->>0, event->>1, event->>2, event->>3);
  END LOOP;
  RETURN r;
END $$;

CREATE OR REPLACE FUNCTION ocean_store_step(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_run_under_lock(a->>'run_id', (a->>'epoch')::bigint);
  stored text;
BEGIN
  SELECT s.result INTO stored FROM ocean_steps s
  WHERE s.run_id = r.run_id AND s.tick = (a->>'tick')::bigint AND s.name = a->>'name';
  IF NOT FOUND THEN
    stored := a->>'result';
    INSERT INTO ocean_steps (run_id, tick, name, result, created_at)
    VALUES (r.run_id, (a->>'tick')::bigint, a->>'name', stored, now);
    IF a ? 'streamed' THEN
      PERFORM ocean_put(ocean_stream(r, a->'streamed', now));
    END IF;
  END IF;
  RETURN to_json(stored);
END $$;

CREATE OR REPLACE FUNCTION ocean_cancel_run(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_run(a->>'run_id');
BEGIN
  IF r.ending IS NULL THEN
    PERFORM ocean_refuse_if_ended(r);
    PERFORM ocean_request_end(r, 'cancel', json_build_object('code', 'cancelled', 'message', a->'reason', 'details',
      NULL)::text, ocean_origin(now, a->>'actor'));
  END IF;
  PERFORM ocean_settle_keys(now);
  RETURN ocean_shown(r.run_id);
END $$;

CREATE OR REPLACE FUNCTION ocean_pause_run(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  r runs := ocean_run(a->>'run_id');
BEGIN
  PERFORM ocean_refuse_if_ended(r);
  IF r.paused <> (a->>'is_paused')::boolean THEN
    r.paused := NOT r.paused;
    r.updated_at := now;
    r := ocean_event(r, ocean_origin(now, a->>'actor'), CASE WHEN r.paused THEN 'run.paused' ELSE 'run.resumed' END,
      json_build_object('status', r.status)::text);
    PERFORM ocean_save(r);
  END IF;
  PERFORM ocean_settle_keys(now);
  RETURN ocean_shown(r.run_id);
END $$;

CREATE OR REPLACE FUNCTION ocean_pause_clog(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  clog ocean_clogs;
BEGIN
  SELECT * INTO clog FROM ocean_clogs c WHERE c.clog_id = a->>'clog_id';
  IF NOT FOUND THEN
    PERFORM ocean_refuse_unknown_clog(a->>'clog_id');
  END IF;
  IF clog.paused <> (a->>'is_paused')::boolean THEN
    UPDATE ocean_clogs c SET paused = NOT c.paused WHERE c.clog_id = clog.clog_id RETURNING c.* INTO clog;
    PERFORM ocean_append_event(now, CASE WHEN clog.paused THEN 'clog.paused' ELSE 'clog.resumed' END, '{}', NULL, clog.clog_id,
      a->>'actor');
  END IF;
  RETURN to_json(clog);
END $$;

-- Registers clogs; a paused clog stays paused. An instance that has only the methods of a clog does not change what is
-- registered about its handlers. If a clog has become external, its existing runs go to the workers of its default
-- queue.
CREATE OR REPLACE FUNCTION ocean_register_clogs(clogs jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  c jsonb;
  is_authority boolean;
BEGIN
  FOR c IN SELECT jsonb_array_elements(clogs) LOOP
    is_authority := (c->>'has_handler')::boolean OR (c->>'external')::boolean;
    IF (c->>'external')::boolean AND EXISTS (
      SELECT 1 FROM ocean_clogs k WHERE k.clog_id = c->>'clog_id' AND NOT k.external) THEN
      UPDATE runs SET queue = 'default' WHERE clog_id = c->>'clog_id' AND queue IS NULL AND ended_at IS NULL;
    END IF;
    INSERT INTO ocean_clogs (clog_id, version, has_on_end, external, takes_all_inputs, allows, end_retry, grace_ms,
      registered_at)
    VALUES (c->>'clog_id', c->>'version', (c->>'has_on_end')::boolean, is_authority AND (c->>'external')::boolean,
      is_authority AND (c->>'takes_all_inputs')::boolean, c->>'allows', c->>'end_retry',
      (c->>'cancel_grace_ms')::bigint, now)
    ON CONFLICT (clog_id) DO UPDATE SET version = excluded.version, has_on_end = excluded.has_on_end,
      external = excluded.external, takes_all_inputs = excluded.takes_all_inputs, allows = excluded.allows,
      end_retry = excluded.end_retry, grace_ms = excluded.grace_ms, registered_at = excluded.registered_at
    WHERE is_authority;
  END LOOP;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION ocean_add_api_key(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO ocean_api_keys (key_id, hash, actor, scopes, roles, sessions, created_at, expires_at)
  VALUES (a->>'key_id', a->>'hash', a->>'actor', a->>'scopes', a->>'roles', a->>'sessions', now,
    (a->>'expires_at')::bigint);
  RETURN to_json(now);
END $$;

CREATE OR REPLACE FUNCTION ocean_revoke_api_key(id text, now bigint) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
  UPDATE ocean_api_keys k SET revoked_at = now WHERE k.key_id = id AND k.revoked_at IS NULL;
  DELETE FROM ocean_web_sessions w WHERE w.key_id = id;
  RETURN (SELECT to_json(k) FROM ocean_api_keys k WHERE k.key_id = id);
END $$;

CREATE OR REPLACE FUNCTION ocean_add_web_session(a jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM ocean_web_sessions w WHERE w.expires_at <= now;
  INSERT INTO ocean_web_sessions (hash, key_id, expires_at)
  VALUES (a->>'hash', a->>'key_id', now + (a->>'for_ms')::bigint);
  RETURN to_json(now + (a->>'for_ms')::bigint);
END $$;

CREATE OR REPLACE FUNCTION ocean_end_web_session(given text) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM ocean_web_sessions w WHERE w.hash = given;
  RETURN to_json(FOUND);
END $$;
