-- Results that are kept for request keys.

-- name: get_request
SELECT hash, answer FROM ocean_requests WHERE request_key = :request_key;

-- name: insert_request
INSERT INTO ocean_requests (request_key, hash, answer, created_at) VALUES (:request_key, :hash, :answer, :now);
