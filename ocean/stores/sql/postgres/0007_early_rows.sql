-- A run may be written before its session, if both are there when it is looked at: see ocean_create_early.
ALTER TABLE runs ALTER CONSTRAINT runs_session_id_fkey DEFERRABLE INITIALLY IMMEDIATE;

-- This one has other arguments now, and that one there is no more.
DROP FUNCTION IF EXISTS ocean_create_plain(jsonb[], bigint);
DROP FUNCTION IF EXISTS ocean_insert_all(runs[], jsonb[]);
