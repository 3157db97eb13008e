-- Only functions have changed. These have no settings of their own any more: connections are set up for their plans.
DROP FUNCTION IF EXISTS ocean_write(text, jsonb, boolean, jsonb);
DROP FUNCTION IF EXISTS ocean_claim(text, jsonb, boolean);
DROP FUNCTION IF EXISTS ocean_read(text, jsonb);
DROP FUNCTION IF EXISTS ocean_walk(text, jsonb);
