-- +goose Up
-- The tree that was last saved of a task's checkpoint folder.
ALTER TABLE task ADD COLUMN checkpoint TEXT CHECK (length(checkpoint) = 64);

-- Where other workers reach it, and when a drain or a pause comes to its end.
ALTER TABLE worker ADD COLUMN address TEXT;
ALTER TABLE worker ADD COLUMN deadline INTEGER CHECK (deadline IS NULL OR draining = 1 OR paused = 1);
