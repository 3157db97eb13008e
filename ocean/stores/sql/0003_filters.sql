-- Each filter of list_runs is one stretch of an index: its columns come first, the order's columns last.
DROP INDEX runs_clog;
DROP INDEX runs_session;
DROP INDEX runs_parent;
CREATE INDEX runs_clog ON runs (clog_id, status, created_at, run_id);
CREATE INDEX runs_session ON runs (session_id, clog_id, status, created_at, run_id);
CREATE INDEX runs_parent ON runs (parent_run_id, status, created_at, run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_clog_ended ON runs (clog_id, status, ended_at, run_id) WHERE ended_at IS NOT NULL;

-- The failed run whose input a run was created with, once more.
ALTER TABLE ocean_run_details ADD COLUMN retry_of TEXT;
