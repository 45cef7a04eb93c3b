-- +goose Up
-- Results of tasks that identical tasks of the project take in place of running. cache of a task is NULL unless its stage uses this.
ALTER TABLE task ADD COLUMN cache TEXT;

CREATE TABLE cache_entry (
  id         INTEGER PRIMARY KEY,
  project    TEXT    NOT NULL,
  key        TEXT    NOT NULL,
  kind       TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  origin     INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  hits       INTEGER NOT NULL,
  hit_at     INTEGER,
  fields     TEXT    CHECK (json_type(fields) = 'array'),
  exit_code  INTEGER,
  metrics    TEXT,
  result     TEXT,
  artifacts  TEXT,
  image      TEXT,
  UNIQUE (project, key)
) STRICT;

CREATE INDEX cache_entry_expires ON cache_entry (expires_at);
CREATE INDEX cache_entry_blobs ON cache_entry (id) WHERE artifacts IS NOT NULL;
