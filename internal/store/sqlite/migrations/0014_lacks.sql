-- +goose Up
-- Features that a worker cannot carry out, and the projects whose tasks it takes: JSON lists of texts; NULL means none, or all projects.
ALTER TABLE worker ADD COLUMN lacks TEXT CHECK (json_valid(lacks));
ALTER TABLE worker ADD COLUMN projects TEXT CHECK (json_valid(projects));
