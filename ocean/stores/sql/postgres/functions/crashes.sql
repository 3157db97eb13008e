-- Crashes of processes: which runs were at work together. See the Python module `suspects`.

-- Returns whether the process of this run has crashed, or lost its locks, which is to be noted in all its runs.
CREATE OR REPLACE FUNCTION ocean_needs_note(r runs, now bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN r.status = 'active' AND NOT r.leased AND r.lock_expires_at <= now;
END $$;

-- Returns those active runs of a crashed process whose crash is not noted yet, as they are with it noted. What it has
-- claimed since one of its locks expired was not at work.
CREATE OR REPLACE FUNCTION ocean_noted(holder text, lapsed_at bigint) RETURNS SETOF runs LANGUAGE plpgsql STABLE AS $$
DECLARE
  r runs;
  found runs[] := ARRAY(
    SELECT q FROM ocean_clogs c, LATERAL (SELECT q FROM runs q
      WHERE q.clog_id = c.clog_id AND q.status = 'active' AND q.locked_by = holder AND NOT q.leased
        AND (SELECT t.claimed_at FROM ocean_ticks t WHERE t.run_id = q.run_id AND t.tick = q.tick) < lapsed_at OFFSET 0) q);
  called bigint := 0;
BEGIN
  -- If the crash of some was noted in advance, those suspects were being called, and nothing else.
  IF NOT EXISTS (SELECT 1 FROM unnest(found) q WHERE q.crash_epoch = q.lock_epoch) THEN
    SELECT count(*) INTO called FROM unnest(found) q WHERE q.crash_company IS NULL;
  END IF;
  FOREACH r IN ARRAY found LOOP
    IF r.crash_epoch IS DISTINCT FROM r.lock_epoch THEN
      -- A suspect that waited for its call stays one, and this crash is no attempt of it.
      r.crash_company := coalesce(greatest(r.crash_company, CASE WHEN r.crash_company IS NOT NULL THEN 2 END), called);
      r.crash_epoch := r.lock_epoch;
      RETURN NEXT r;
    END IF;
  END LOOP;
END $$;

-- Notes the crash of the run's process, if there was one, in all runs that it had locked. Returns this run.
CREATE OR REPLACE FUNCTION ocean_with_crash_noted(r runs, now bigint) RETURNS runs LANGUAGE plpgsql AS $$
DECLARE
  each_run runs;
BEGIN
  IF NOT ocean_needs_note(r, now) THEN
    RETURN r;
  END IF;
  FOR each_run IN SELECT * FROM ocean_noted(r.locked_by, r.lock_expires_at) LOOP
    PERFORM ocean_put(each_run);
  END LOOP;
  RETURN ocean_find(r.run_id);
END $$;

-- Returns the run as `ocean_with_crash_noted` would, and writes nothing.
CREATE OR REPLACE FUNCTION ocean_as_if_noted(r runs) RETURNS runs LANGUAGE plpgsql STABLE AS $$
DECLARE
  found runs;
BEGIN
  IF ocean_needs_note(r, ocean_now()) THEN
    SELECT n.* INTO found FROM ocean_noted(r.locked_by, r.lock_expires_at) n WHERE n.run_id = r.run_id;
  END IF;
  RETURN CASE WHEN found.run_id IS NULL THEN r ELSE found END;
END $$;

-- Writes the company of suspects whose calls begin now. Returns the positions of the locks that are lost.
CREATE OR REPLACE FUNCTION ocean_call_apart(locks jsonb, now bigint) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
  r runs;
  lost bigint[] := '{}';
BEGIN
  FOR place IN 0 .. jsonb_array_length(locks) - 1 LOOP
    r := ocean_find(locks->place->>0);
    IF ocean_is_held(r, (locks->place->>1)::bigint) THEN
      r.crash_company := jsonb_array_length(locks);
      r.crash_epoch := r.lock_epoch;
      PERFORM ocean_put(r);
    ELSE
      lost := lost || place::bigint;
    END IF;
  END LOOP;
  RETURN to_json(lost);
END $$;
