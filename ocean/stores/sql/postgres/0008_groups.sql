-- Functions have changed: none reads a whole table, or all of a run's inputs, to find out whether one row is there.

-- All rows of a group are written one after the other, and all of them are changed once more by the group that commits their
-- ticks: there must be room for every one of them beside it, or it is written elsewhere, with new entries in every index.
ALTER TABLE ocean_run_details SET (fillfactor = 50);
ALTER TABLE ocean_inbox SET (fillfactor = 60);
ALTER TABLE ocean_ticks SET (fillfactor = 50);
