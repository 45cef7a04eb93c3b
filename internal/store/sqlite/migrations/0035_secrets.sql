-- +goose Up
-- Values of tasks that are encrypted: sealed is of package sealing, with the other columns but the last two as its context.
CREATE TABLE secret (
  project    TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  version    INTEGER NOT NULL CHECK (version > 0),
  workers    TEXT    CHECK (json_type(workers) = 'array'),
  sealed     BLOB    NOT NULL,
  updated_at INTEGER NOT NULL,
  updated_by TEXT    NOT NULL,
  PRIMARY KEY (project, name)
) STRICT, WITHOUT ROWID;
