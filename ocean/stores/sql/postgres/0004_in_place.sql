-- Only functions have changed; these have other arguments or answers now.
DROP FUNCTION IF EXISTS ocean_write(text, jsonb, boolean);
DROP FUNCTION IF EXISTS ocean_due(jsonb, text[], bigint, bigint);
DROP FUNCTION IF EXISTS ocean_claim_due(jsonb, boolean, bigint);
DROP FUNCTION IF EXISTS ocean_claim_named(jsonb, bigint);
DROP FUNCTION IF EXISTS ocean_claim_plain(text[], jsonb, bigint);
DROP FUNCTION IF EXISTS ocean_put_all(runs[]);
DROP FUNCTION IF EXISTS ocean_assigned(ocean_inbox, bigint);
