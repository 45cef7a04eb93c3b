-- +goose Up
-- The task of an earlier job whose result and artifacts a task has: job * 2^24 + its number; NULL for tasks that ran.
ALTER TABLE task ADD COLUMN origin INTEGER CHECK (origin >= 1 << 24);

-- Stages whose number of tasks is not known yet.
ALTER TABLE job ADD COLUMN unsized INTEGER NOT NULL DEFAULT 0 CHECK (unsized >= 0);
