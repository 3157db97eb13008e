-- Only functions have changed; a group finds out by itself whether it was given up.
DROP FUNCTION IF EXISTS ocean_begin(text);
