-- +goose Up
-- The recognizable beginning of a key's token, when and from where the key was last used, and whether it is an old secret of its parent,
-- which works until it expires.
ALTER TABLE api_key ADD COLUMN prefix         TEXT;
ALTER TABLE api_key ADD COLUMN last_used_at   INTEGER;
ALTER TABLE api_key ADD COLUMN last_used_from TEXT;
ALTER TABLE api_key ADD COLUMN rotated        INTEGER NOT NULL DEFAULT 0 CHECK (rotated IN (0, 1) AND (rotated = 0 OR (parent IS NOT NULL AND expires_at IS NOT NULL)));
