-- The state machine: a run and an event → the run after it. Names and order are those of the Python module
-- `transitions`; a test compares the two on generated runs.

-- Returns when the run's handler is to be called next, if its concurrency keys allow it. Null: not by time alone.
CREATE OR REPLACE FUNCTION ocean_next_call_at(r runs) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF r.paused AND r.ending IS NULL THEN
    RETURN NULL;
  END IF;
  RETURN CASE r.status
    WHEN 'pending' THEN coalesce(r.wake_at, r.ready_at, 0)
    WHEN 'waiting' THEN r.wake_at
    WHEN 'active' THEN least(r.stop_by, r.lock_expires_at)
  END;
END $$;

-- Returns when a poke has something to do for this run; null means never. It is the one indexed time.
CREATE OR REPLACE FUNCTION ocean_due_at(r runs) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF r.status IN ('done', 'failed') THEN
    RETURN NULL;
  END IF;
  RETURN least(
    CASE WHEN r.ending IS NULL THEN r.deadline_at END,
    CASE WHEN r.parked_on IS NULL THEN ocean_next_call_at(r) END);
END $$;

-- Returns whether a run that is not active would be called now, and so needs a slot of each of its keys.
CREATE OR REPLACE FUNCTION ocean_wants_slots(r runs, now bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN r.status <> 'active' AND coalesce(ocean_next_call_at(r) <= greatest(now, r.updated_at), false);
END $$;

-- The failed attempts of the run, or of its last tick if it is ending; and how many it has.
CREATE OR REPLACE FUNCTION ocean_attempts(r runs) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE WHEN r.ending IS NULL THEN r.attempt ELSE r.end_attempt END;
END $$;

CREATE OR REPLACE FUNCTION ocean_most_attempts(r runs) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE WHEN r.ending IS NULL THEN r.max_attempts ELSE r.end_max_attempts END;
END $$;

CREATE OR REPLACE FUNCTION ocean_with_attempts(r runs, count bigint) RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF r.ending IS NULL THEN
    r.attempt := count;
  ELSE
    r.end_attempt := count;
  END IF;
  RETURN r;
END $$;

-- Returns whether a crash of this active run is a failed attempt. Without a note, it was alone.
CREATE OR REPLACE FUNCTION ocean_counts_as_attempt(r runs) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN r.crash_epoch IS DISTINCT FROM r.lock_epoch OR r.crash_company = 1;
END $$;

-- Returns whether the call in progress is the last one: if its lock lapses, any `advance` ends the run.
CREATE OR REPLACE FUNCTION ocean_is_last_call(r runs) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN r.status = 'active' AND r.stop_by IS NULL AND (r.ending IS NOT NULL OR NOT r.paused)
    AND ocean_is_spent(ocean_attempts(r) + 1, ocean_most_attempts(r)) AND ocean_counts_as_attempt(r);
END $$;

-- Returns why any `advance` must end this run now: a deadline, or a crash on the last call; or null.
CREATE OR REPLACE FUNCTION ocean_kernel_end(r runs, now bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF r.status IN ('done', 'failed') THEN
    RETURN NULL;
  ELSIF r.deadline_at <= now AND r.ending IS NULL THEN
    RETURN 'deadline';
  ELSIF r.lock_expires_at <= now AND ocean_is_last_call(r) THEN
    RETURN coalesce(r.ending, 'exhausted');
  END IF;
  RETURN NULL;
END $$;

-- Returns whether any `advance` takes the run back from a worker that stopped renewing.
CREATE OR REPLACE FUNCTION ocean_is_lapsed_lease(r runs, now bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN r.leased AND NOT r.paused AND r.lock_expires_at <= now;
END $$;

-- The fence: a write under an old epoch, or to a run that is no longer active, changes nothing.
CREATE OR REPLACE FUNCTION ocean_is_held(r runs, epoch bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN r.run_id IS NOT NULL AND r.status = 'active' AND r.lock_epoch = epoch;
END $$;

-- A key is full: the run leaves the due index and is parked behind those parked before; a last tick comes before them
-- all.
CREATE OR REPLACE FUNCTION ocean_parked(r runs, key text, now bigint) RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  r.parked_at := CASE WHEN r.ending IS NOT NULL THEN 0 ELSE coalesce(r.parked_at, now) END;
  r.parked_on := key;
  r.updated_at := now;
  RETURN r;
END $$;

-- A slot is free, or the run no longer wants one. If it must park again, it keeps its place.
CREATE OR REPLACE FUNCTION ocean_unparked(r runs, now bigint) RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  -- A clock that is behind must not make it ready earlier: it would be called before its input is available.
  r.ready_at := CASE WHEN r.ready_at IS NOT NULL THEN greatest(now, r.ready_at) END;
  r.parked_on := NULL;
  r.updated_at := greatest(now, r.updated_at);
  RETURN r;
END $$;

-- A run that is created, or created again before its first claim, starts at a later time.
CREATE OR REPLACE FUNCTION ocean_delayed(r runs, by text, key text, until bigint, now bigint) RETURNS runs
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  r.parked_on := NULL;
  r.parked_at := NULL;
  r.ready_at := NULL;
  r.wake_at := until;
  r.delayed_by := by;
  r.delay_key := key;
  r.updated_at := now;
  RETURN r;
END $$;

-- An input was appended: a signal, a timer, a child's outcome. A back-off and a call in progress continue.
CREATE OR REPLACE FUNCTION ocean_input_arrived(r runs, available_at bigint, now bigint) RETURNS runs
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ocean_refuse_if_ended(r);
  IF r.status IN ('idle', 'waiting') AND available_at <= now THEN
    r.status := 'pending';
    r.wake_at := NULL;
    r.wait_until := NULL;
    r.ready_at := now;
  ELSIF r.status = 'idle' THEN
    r.status := 'waiting';
    r.wake_at := available_at;
  ELSIF r.status = 'waiting' THEN
    r.wake_at := least(r.wake_at, available_at);
  END IF;
  r.updated_at := now;
  RETURN r;
END $$;

-- A direct call set or cancelled timers: an idle or waiting run sleeps until its first input.
CREATE OR REPLACE FUNCTION ocean_inbox_changed(r runs, next_input_at bigint, now bigint) RETURNS runs
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ocean_refuse_if_ended(r);
  IF r.status IN ('idle', 'waiting') THEN
    IF next_input_at <= now THEN
      RETURN ocean_input_arrived(r, next_input_at, now);
    END IF;
    r.wake_at := least(r.wait_until, next_input_at);
    r.status := CASE WHEN r.wake_at IS NULL THEN 'idle' ELSE 'waiting' END;
    r.parked_on := NULL;
    r.parked_at := NULL;
  END IF;
  r.updated_at := now;
  RETURN r;
END $$;

-- Takes the lock of a run that is due. A lapsed lock is a crash, and a crash is a failed attempt if it counts as one.
-- A run whose call was to stop gets its last tick. A suspect stays one until its call ends in order.
CREATE OR REPLACE FUNCTION ocean_claimed(r runs, holder text, lock_ms bigint, is_lease boolean, now bigint) RETURNS runs
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  company bigint;
  crashed_at bigint;
BEGIN
  IF r.stop_by IS NOT NULL THEN
    r := ocean_stopped(r, now);
  ELSIF r.status = 'active' AND ocean_counts_as_attempt(r) THEN
    r := ocean_with_attempts(r, ocean_attempts(r) + 1);
  END IF;
  company := r.crash_company;
  crashed_at := r.crash_epoch;
  r := ocean_unlocked(r, now);
  IF company > 0 THEN
    r.crash_company := company;
    r.crash_epoch := crashed_at;
  END IF;
  r.status := 'active';
  r.leased := is_lease;
  r.locked_by := holder;
  r.lock_expires_at := now + lock_ms;
  r.lock_epoch := r.lock_epoch + 1;
  r.tick := r.tick + CASE WHEN r.tick_open THEN 0 ELSE 1 END;
  r.tick_open := true;
  RETURN r;
END $$;

-- The holder's process is gone: the lock expires now, as if its time were over.
CREATE OR REPLACE FUNCTION ocean_lock_released(r runs, now bigint) RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  r.lock_expires_at := least(now, coalesce(r.lock_expires_at, 0));
  RETURN r;
END $$;

-- A tick was committed. `next_input_at` is when the first remaining input becomes available; `wait_until` belongs to
-- Wait.
CREATE OR REPLACE FUNCTION ocean_settled(r runs, outcome text, wait_until bigint, next_input_at bigint, now bigint)
RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF r.ending IS NOT NULL THEN
    RETURN ocean_ended(r, 'failed', now);
  END IF;
  r.attempt := 0;
  IF outcome IN ('done', 'failed') THEN
    RETURN ocean_ended(r, outcome, now);
  END IF;
  r := ocean_unlocked(r, now);
  r.tick_open := false;
  IF outcome = 'continue' OR coalesce(next_input_at <= now, false) THEN
    r.status := 'pending';
    r.ready_at := now;
  ELSIF outcome = 'ok' AND next_input_at IS NULL THEN
    r.status := 'idle';
  ELSE
    r.status := 'waiting';
    r.wake_at := least(wait_until, next_input_at);
    r.wait_until := wait_until;
  END IF;
  RETURN r;
END $$;

-- A call failed before its last attempt. The tick stays open, with its inputs.
CREATE OR REPLACE FUNCTION ocean_retried(r runs, delay_ms bigint, now bigint) RETURNS runs
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  r := ocean_with_attempts(ocean_unlocked(r, now), ocean_attempts(r) + 1);
  r.status := 'pending';
  r.wake_at := now + delay_ms;
  RETURN r;
END $$;

-- A call was stopped by its caller: the tick waits for the next call. A suspect stays one.
CREATE OR REPLACE FUNCTION ocean_given_back(r runs, attempt bigint, now bigint) RETURNS runs
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  before runs := r;
BEGIN
  r := ocean_with_attempts(ocean_unlocked(r, now), attempt);
  r.crash_company := before.crash_company;
  r.crash_epoch := before.crash_epoch;
  r.status := 'pending';
  r.ready_at := now;
  RETURN r;
END $$;

-- A worker did not renew its lease: a failed attempt, not the last one; the tick waits for the next worker.
CREATE OR REPLACE FUNCTION ocean_lease_lapsed(r runs, now bigint) RETURNS runs LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  r := ocean_unlocked(r, now);
  r.status := 'pending';
  r.attempt := r.attempt + 1;
  r.ready_at := now;
  RETURN r;
END $$;
