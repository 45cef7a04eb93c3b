-- +goose Up
-- The only job that a key may read; NULL means all.
ALTER TABLE api_key ADD COLUMN job INTEGER CHECK (job > 0);
