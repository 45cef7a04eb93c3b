-- +goose Up
-- 1 while the tasks of a job are not started.
ALTER TABLE job ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1));
