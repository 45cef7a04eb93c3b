-- +goose Up
-- The task of an earlier job whose result and artifacts a task has: job * 2^24 + its number; NULL for tasks that ran.
ALTER TABLE task ADD COLUMN origin INTEGER CHECK (origin >= 1 << 24);
