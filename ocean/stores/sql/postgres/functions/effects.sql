-- The effects of a tick or a direct call, applied inside its commit.

-- Returns whether something that the call read has changed: the version of a row, or the holder of a dedupe key.
CREATE OR REPLACE FUNCTION ocean_has_conflict(e jsonb, own text, now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  freed text := CASE WHEN e ? 'release_dedupe_key' THEN own END;
BEGIN
  RETURN ocean_have_rows_changed(e, own) OR (e ? 'runs' AND EXISTS (
      SELECT 1 FROM jsonb_array_elements(e->'runs') n,
        LATERAL ocean_holder_of_key(n->>'clog_id', n->>'session_id', n->>'dedupe_key', now) holder
      WHERE n->>'dedupe_key' IS NOT NULL AND holder.run_id IS NOT NULL AND holder.run_id IS DISTINCT FROM freed));
END $$;

-- Applies all effects except deletions, which come last. The run is null for a call on a clog alone.
CREATE OR REPLACE FUNCTION ocean_apply_effects(r runs, e jsonb, o ocean_origin, clog text, session text) RETURNS runs
LANGUAGE plpgsql AS $$
DECLARE
  each jsonb;
BEGIN
  IF e ? 'release_dedupe_key' AND r.run_id IS NOT NULL THEN
    PERFORM ocean_release_dedupe_key(r.run_id);
  END IF;
  FOR each IN SELECT jsonb_array_elements(e->'takes') LOOP
    PERFORM ocean_take(each, o.now);
  END LOOP;
  FOR each IN SELECT jsonb_array_elements(e->'runs') LOOP
    PERFORM ocean_find_or_create(each, o.now, o.caused_by);
  END LOOP;
  IF e ? 'writes' THEN
    PERFORM ocean_write_rows(e->'writes', r.run_id, o.now);
  END IF;
  FOR each IN SELECT jsonb_array_elements(e->'events') LOOP
    r := ocean_log(r, o, each->>0, each->>1, each->>2, session);
  END LOOP;
  FOR each IN SELECT jsonb_array_elements(e->'signals') LOOP
    r := ocean_send_signal(r, each, o, clog, session);
  END LOOP;
  IF e ? 'timers' THEN
    r := ocean_change_timers(r, e->'timers', o);
  END IF;
  IF e ? 'attributes' THEN
    r := ocean_set_attributes(r, e->'attributes', e->>'attributes_said', o);
  END IF;
  RETURN r;
END $$;

CREATE OR REPLACE FUNCTION ocean_log(r runs, o ocean_origin, type text, payload text, clog text, session text)
RETURNS runs LANGUAGE plpgsql AS $$
BEGIN
  IF r.run_id IS NOT NULL THEN
    RETURN ocean_event(r, o, type, payload, clog);
  END IF;
  PERFORM ocean_append_event(o.now, type, payload, session, clog, o.actor);
  RETURN r;
END $$;

-- Delivers a signal from one run to another. If the target has ended or was deleted, the sender's log gets an event
-- that the signal is undelivered.
CREATE OR REPLACE FUNCTION ocean_send_signal(r runs, s jsonb, o ocean_origin, clog text, session text) RETURNS runs
LANGUAGE plpgsql AS $$
DECLARE
  target runs := CASE WHEN s->>'run_id' = r.run_id THEN r ELSE ocean_find(s->>'run_id') END;
BEGIN
  IF target.run_id IS NOT NULL THEN
    IF ocean_earlier_signal(target.run_id, s) IS NOT NULL THEN
      RETURN r;
    ELSIF NOT ocean_is_ended(target) AND target.ending IS NULL THEN
      target := ocean_append_signal(target, s, o.now, o.caused_by);
      IF target.run_id = r.run_id THEN
        RETURN target;
      END IF;
      PERFORM ocean_save(target);
      RETURN r;
    END IF;
  END IF;
  IF (s->>'required')::boolean THEN
    PERFORM ocean_refuse('signal_refused', json_build_object('run_id', s->'run_id'));
  END IF;
  RETURN ocean_log(r, o, 'signal.undelivered',
    json_build_object('to', s->'run_id', 'kind', 'signal', 'signal_id', s->'signal_id')::text, clog, session);
END $$;

CREATE OR REPLACE FUNCTION ocean_change_timers(r runs, timers jsonb, o ocean_origin) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  t jsonb;
BEGIN
  IF r.run_id IS NULL THEN
    PERFORM ocean_refuse('timers_need_a_run');
  END IF;
  FOR t IN SELECT jsonb_array_elements(timers) LOOP
    IF t ? 'at' THEN
      r := ocean_set_timer(r, t, o);
    ELSE
      r := ocean_cancel_timer(r, t, o);
    END IF;
    IF o.tick IS NULL THEN
      r := ocean_inbox_changed(r, ocean_next_input_at(r.run_id), o.now);
    END IF;
  END LOOP;
  RETURN r;
END $$;

CREATE OR REPLACE FUNCTION ocean_set_attributes(r runs, attributes jsonb, payload text, o ocean_origin) RETURNS runs
LANGUAGE plpgsql AS $$
BEGIN
  IF r.run_id IS NULL THEN
    PERFORM ocean_refuse('attributes_need_a_run');
  END IF;
  PERFORM ocean_put_attributes(r, attributes);
  IF (SELECT count(*) FROM ocean_attributes b WHERE b.run_id = r.run_id) > 16 THEN
    PERFORM ocean_refuse('too_many_attributes');
  END IF;
  RETURN ocean_event(r, o, 'run.attributes_set', payload);
END $$;

-- Applies deletions, after the commit has written the run's row.
CREATE OR REPLACE FUNCTION ocean_apply_deletions(id text, session text, e jsonb, o ocean_origin) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  each jsonb;
  r runs;
BEGIN
  FOR each IN SELECT jsonb_array_elements(e->'delete_ticks') LOOP
    r := ocean_run(id);
    IF r.tick_open AND r.tick = each::bigint THEN
      PERFORM ocean_refuse('tick_is_open', json_build_object('run_id', id, 'tick', each));
    END IF;
    DELETE FROM ocean_ticks t WHERE t.run_id = id AND t.tick = each::bigint;
  END LOOP;
  PERFORM ocean_settle_keys(o.now);
  FOR each IN SELECT jsonb_array_elements(e->'delete_runs') LOOP
    r := ocean_find(each->>1);
    IF r.clog_id <> each->>0 THEN
      PERFORM ocean_refuse('run_of_another', json_build_object('run_id', r.run_id, 'owner', r.clog_id, 'clog_id', each->0));
    ELSIF r.run_id IS NOT NULL THEN
      PERFORM ocean_delete_tree(r.run_id, o.actor, o.now);
    END IF;
  END LOOP;
  IF e ? 'delete_session_by' AND session IS NOT NULL THEN
    SELECT * INTO r FROM runs WHERE session_id = session AND clog_id <> e->>'delete_session_by' LIMIT 1;
    IF r.run_id IS NOT NULL THEN
      PERFORM ocean_refuse('session_of_others', json_build_object('session_id', session, 'run_id', r.run_id,
        'owner', r.clog_id, 'clog_id', e->'delete_session_by'));
    END IF;
    PERFORM ocean_delete_session(session, o.actor, o.now);
  END IF;
END $$;
