-- What ocean_commit_told says now.
DROP FUNCTION IF EXISTS ocean_provenance(jsonb);

-- One check instead of twenty. A statement prepares each check of its table anew, which took longer than all the rest of
-- a run's change; a function is prepared once for a connection. See ocean_makes_sense.
DO $$
DECLARE
  name text;
BEGIN
  FOR name IN SELECT c.conname FROM pg_constraint c WHERE c.conrelid = 'runs'::regclass AND c.contype = 'c' LOOP
    EXECUTE format('ALTER TABLE runs DROP CONSTRAINT %I', name);
  END LOOP;
END $$;

CREATE FUNCTION ocean_makes_sense(status text, ending text, priority smallint, attempt bigint, max_attempts bigint,
  due_at bigint, ready_at bigint, wake_at bigint, wait_until bigint, locked_by text, lock_expires_at bigint,
  tick_open boolean, pending_count bigint, ended_at bigint, key_count smallint, parked_on text, parked_at bigint,
  leased boolean, delayed_by text, delay_key text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN priority BETWEEN 0 AND 9 AND attempt >= 0 AND coalesce(max_attempts >= 1, true) AND pending_count >= 0
    AND key_count BETWEEN 0 AND 3
    AND (ending IS NULL OR ending IN ('cancel', 'deadline', 'exhausted'))
    AND CASE status
      WHEN 'idle' THEN wake_at IS NULL
      WHEN 'pending' THEN (ready_at IS NULL) <> (wake_at IS NULL)
      WHEN 'active' THEN true
      WHEN 'waiting' THEN wake_at IS NOT NULL
      WHEN 'done' THEN true
      WHEN 'failed' THEN true
      ELSE false END
    AND (status = 'active') = (locked_by IS NOT NULL) AND (status = 'active') = (lock_expires_at IS NOT NULL)
    AND (status = 'active' OR NOT leased) AND (status = 'waiting' OR wait_until IS NULL)
    AND (status IN ('done', 'failed')) = (ended_at IS NOT NULL)
    AND (ended_at IS NULL OR (due_at IS NULL AND wake_at IS NULL AND ending IS NULL AND NOT tick_open))
    AND (parked_on IS NULL OR (key_count > 0 AND parked_at IS NOT NULL AND status IN ('pending', 'waiting')))
    AND (delayed_by IS NULL OR (delayed_by IN ('rate', 'debounce') AND status = 'pending' AND wake_at IS NOT NULL))
    AND (delayed_by IS NULL) = (delay_key IS NULL);
END $$;

ALTER TABLE runs ADD CONSTRAINT runs_make_sense CHECK (ocean_makes_sense(status, ending, priority, attempt, max_attempts,
  due_at, ready_at, wake_at, wait_until, locked_by, lock_expires_at, tick_open, pending_count, ended_at, key_count,
  parked_on, parked_at, leased, delayed_by, delay_key));
