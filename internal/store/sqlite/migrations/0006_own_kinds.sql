-- +goose Up
-- Kinds that the worker's owner added, as JSON. It is from outside and may be nested deeper than SQLite reads, so it is not looked into here.
ALTER TABLE worker ADD COLUMN own_kinds TEXT CHECK (length(own_kinds) > 0);
