-- +goose Up
-- The image in whose container it ran, by its digest.
ALTER TABLE task ADD COLUMN image TEXT;
ALTER TABLE attempt ADD COLUMN image TEXT;

-- What the worker's owner lets tasks have.
ALTER TABLE worker ADD COLUMN allow TEXT CHECK (json_type(allow) = 'object');
