-- +goose Up
-- Jobs with notifications in their specs; long: some are about a long wait. It is written before the job itself.
CREATE TABLE notify_job (
  job  INTEGER PRIMARY KEY REFERENCES job (id) DEFERRABLE INITIALLY DEFERRED,
  long INTEGER NOT NULL CHECK (long IN (0, 1))
) STRICT;

CREATE TABLE notify_project (
  project TEXT    PRIMARY KEY,
  list    TEXT    NOT NULL CHECK (json_type(list) = 'array'),
  long    INTEGER NOT NULL CHECK (long IN (0, 1))
) STRICT, WITHOUT ROWID;

-- Ends of jobs of which no deliveries were made yet.
CREATE TABLE job_end (
  id    INTEGER PRIMARY KEY AUTOINCREMENT,
  job   INTEGER NOT NULL REFERENCES job (id) DEFERRABLE INITIALLY DEFERRED,
  state INTEGER NOT NULL CHECK (state BETWEEN 4 AND 7),
  at    INTEGER NOT NULL
) STRICT;

-- Jobs that wait and whose wait is watched: since when, and which wait in nanoseconds was notified.
CREATE TABLE job_idle (
  job   INTEGER PRIMARY KEY REFERENCES job (id),
  since INTEGER NOT NULL,
  told  INTEGER NOT NULL CHECK (told >= 0)
) STRICT;

CREATE TABLE delivery (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  message     TEXT    NOT NULL UNIQUE,
  project     TEXT    NOT NULL,
  job         INTEGER,
  event       TEXT    NOT NULL,
  url         TEXT    NOT NULL,
  host        TEXT    NOT NULL,
  preset      TEXT,
  secret      TEXT,
  body        TEXT    NOT NULL,
  headers     TEXT    CHECK (json_type(headers) = 'object'),
  created_at  INTEGER NOT NULL,
  attempts    INTEGER NOT NULL CHECK (attempts >= 0),
  next_at     INTEGER,
  tried_at    INTEGER,
  status      INTEGER,
  error       TEXT,
  took        INTEGER NOT NULL CHECK (took >= 0),
  delivered   INTEGER NOT NULL CHECK (delivered IN (0, 1)),
  finished_at INTEGER,
  CHECK ((next_at IS NULL) = (finished_at IS NOT NULL)),
  CHECK (delivered = 0 OR next_at IS NULL)
) STRICT;

CREATE INDEX delivery_due ON delivery (host, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX delivery_pending ON delivery (project) WHERE next_at IS NOT NULL;
CREATE INDEX delivery_final ON delivery (project, finished_at, id) WHERE next_at IS NULL;

-- The key by which the server signs requests and seals secrets.
CREATE TABLE webhook_key (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  key TEXT    NOT NULL CHECK (length(key) = 64)
) STRICT;
