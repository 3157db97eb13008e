-- Inputs and timers.

-- name: insert_input
INSERT INTO ocean_inbox (run_id, number, kind, body, body_hash, signal_id, timer, actor, caused_by, available_at,
  created_at, event_seq, status_then, assigned_tick)
VALUES (:run_id, :number, :kind, :body, :body_hash, :signal_id, :timer, :actor, :caused_by, :available_at, :created_at,
  :event_seq, :status_then, :assigned_tick);

-- name: get_signal
-- The input that a signal with this id has created.
SELECT number, body_hash, event_seq, status_then FROM ocean_inbox WHERE run_id = :run_id AND signal_id = :signal_id;

-- name: next_input_at
-- When the first unassigned input becomes available.
SELECT available_at FROM ocean_inbox WHERE run_id = :run_id AND assigned_tick IS NULL
ORDER BY available_at, number LIMIT 1;

-- name: due_inputs
-- The inputs for the next tick.
SELECT * FROM ocean_inbox WHERE run_id = :run_id AND assigned_tick IS NULL AND available_at <= :now
ORDER BY available_at, number LIMIT :limit;

-- name: assign_input
UPDATE ocean_inbox SET assigned_tick = :tick WHERE run_id = :run_id AND number = :number;

-- name: tick_inputs
-- The inputs that are assigned to a tick and not consumed.
SELECT * FROM ocean_inbox INDEXED BY ocean_inbox_open
WHERE run_id = :run_id AND assigned_tick = :tick AND consumed_tick IS NULL
ORDER BY available_at, number;

-- name: unconsumed
-- The numbers of the inputs that are assigned to a tick and not consumed.
SELECT number FROM ocean_inbox INDEXED BY ocean_inbox_open
WHERE run_id = :run_id AND assigned_tick = :tick AND consumed_tick IS NULL ORDER BY number;

-- name: consume_input
UPDATE ocean_inbox SET consumed_tick = :tick WHERE run_id = :run_id AND number = :number;

-- name: cancel_timer
-- Deletes a timer that has not fired; one whose tick has begun stays.
DELETE FROM ocean_inbox WHERE run_id = :run_id AND timer = :timer AND assigned_tick IS NULL RETURNING number;

-- name: drop_timers
DELETE FROM ocean_inbox INDEXED BY ocean_inbox_open
WHERE run_id = :run_id AND timer IS NOT NULL AND consumed_tick IS NULL RETURNING number;

-- name: undelivered
SELECT number, kind, signal_id FROM ocean_inbox INDEXED BY ocean_inbox_open
WHERE run_id = :run_id AND consumed_tick IS NULL ORDER BY number;

-- name: list_inputs
SELECT * FROM ocean_inbox WHERE run_id = :run_id AND number > :after ORDER BY number LIMIT :limit;
