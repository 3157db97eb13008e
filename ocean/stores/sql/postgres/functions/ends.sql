-- How a run ends: at once, or after one last tick of its clog. Names and order are those of the Python module `ends`.

CREATE OR REPLACE FUNCTION ocean_is_ended(r runs) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN r.status IN ('done', 'failed');
END $$;

CREATE OR REPLACE FUNCTION ocean_refuse_if_ended(r runs) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF r.status IN ('done', 'failed') OR r.ending IS NOT NULL THEN
    PERFORM ocean_refuse('run_ended', json_build_object('run', to_json(r)));
  END IF;
END $$;

CREATE OR REPLACE FUNCTION ocean_unlocked(r runs, now bigint) RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  r.locked_by := NULL;
  r.lock_expires_at := NULL;
  r.leased := false;
  r.ready_at := NULL;
  r.wake_at := NULL;
  r.wait_until := NULL;
  r.delayed_by := NULL;
  r.delay_key := NULL;
  r.parked_on := NULL;
  r.parked_at := NULL;
  r.stop_by := NULL;
  r.crash_company := NULL;
  r.crash_epoch := NULL;
  r.updated_at := now;
  RETURN r;
END $$;

-- The final state: no lock, no wake time, never due again.
CREATE OR REPLACE FUNCTION ocean_ended(r runs, status text, now bigint) RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  r := ocean_unlocked(r, now);
  r.status := status;
  r.ending := NULL;
  r.tick_open := false;
  r.paused := false;
  r.ended_at := now;
  RETURN r;
END $$;

-- The kernel ends the run after one last tick of its clog. A call in progress may store the result of a step until
-- `stop_by`; then, or when it has stopped before, the last tick begins.
CREATE OR REPLACE FUNCTION ocean_ending(r runs, reason text, most_attempts bigint, grace_ms bigint, now bigint)
RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  r.ending := reason;
  r.end_attempt := 0;
  r.end_max_attempts := most_attempts;
  r.updated_at := now;
  IF r.status = 'active' AND r.lock_expires_at > now AND NOT r.leased AND reason <> 'exhausted' AND grace_ms > 0 THEN
    r.stop_by := now + grace_ms;
    RETURN r;
  END IF;
  RETURN ocean_stopped(r, now);
END $$;

-- The run that is ending has no call any more: its last tick is due. The tick of that call keeps no outcome.
CREATE OR REPLACE FUNCTION ocean_stopped(r runs, now bigint) RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  r := ocean_unlocked(r, now);
  r.status := 'pending';
  r.ready_at := now;
  r.tick_open := false;
  RETURN r;
END $$;

-- Calls the last tick of a run again that has ended without it: with the same number, and all its attempts.
CREATE OR REPLACE FUNCTION ocean_end_retried(r runs, reason text, most_attempts bigint, now bigint) RETURNS runs
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  r.ending := reason;
  r.end_attempt := 0;
  r.end_max_attempts := most_attempts;
  r.ended_at := NULL;
  r.status := 'pending';
  r.wake_at := now;
  r.tick_open := true;
  r.end_incomplete := false;
  r.updated_at := now;
  RETURN r;
END $$;
