-- +goose Up
-- Jobs that are submitted by themselves. next_at is the first run that is not decided, NULL if there is none; last_at the latest that was.
CREATE TABLE schedule (
  id         INTEGER PRIMARY KEY,
  project    TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  cron       TEXT    NOT NULL,
  timezone   TEXT    NOT NULL,
  missed     TEXT    NOT NULL CHECK (missed IN ('skip', 'run-once', 'run-all')),
  overlap    TEXT    NOT NULL CHECK (overlap IN ('allow', 'forbid', 'replace')),
  owner      TEXT    NOT NULL,
  owner_name TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  paused     INTEGER NOT NULL CHECK (paused IN (0, 1)),
  next_at    INTEGER CHECK (paused = 0 OR next_at IS NULL),
  last_at    INTEGER,
  spec       TEXT    NOT NULL CHECK (json_type(spec) = 'object'),
  UNIQUE (project, name)
) STRICT;

CREATE INDEX schedule_next ON schedule (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_last ON schedule (last_at) WHERE next_at IS NOT NULL;

-- What was decided about runs. The jobs may have been removed since.
CREATE TABLE schedule_run (
  schedule   INTEGER NOT NULL REFERENCES schedule (id) ON DELETE CASCADE,
  n          INTEGER NOT NULL CHECK (n > 0),
  at         INTEGER NOT NULL,
  decided_at INTEGER NOT NULL,
  outcome    TEXT    NOT NULL CHECK (outcome IN ('started', 'skipped', 'refused')),
  manual     INTEGER NOT NULL CHECK (manual IN (0, 1)),
  job        INTEGER CHECK ((job IS NOT NULL) = (outcome = 'started')),
  message    TEXT,
  PRIMARY KEY (schedule, n)
) STRICT, WITHOUT ROWID;
