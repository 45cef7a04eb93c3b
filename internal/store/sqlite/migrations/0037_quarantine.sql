-- +goose Up
-- Why the identity of a worker is not accepted until it is reset: NULL if it is. The key decides; the worker shows it.
ALTER TABLE api_key ADD COLUMN quarantined TEXT;
ALTER TABLE worker  ADD COLUMN quarantined TEXT;
