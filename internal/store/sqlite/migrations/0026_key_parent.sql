-- +goose Up
-- The key that made a link to a job; the link ends with it.
ALTER TABLE api_key ADD COLUMN parent TEXT REFERENCES api_key (id) ON DELETE CASCADE;
CREATE INDEX api_key_parent ON api_key (parent) WHERE parent IS NOT NULL;
-- The key of webhooks is in a file beside the database.
DROP TABLE webhook_key;
