-- States are numbers in the order of muster.TaskStates and muster.JobStates,
-- from 1. Times are milliseconds since 1970, NULL when unknown. What is absent is NULL.

-- +goose Up
CREATE TABLE job (
  id           INTEGER PRIMARY KEY CHECK (id >= 1),
  name         TEXT    NOT NULL,
  project      TEXT    NOT NULL,
  state        INTEGER NOT NULL CHECK (state BETWEEN 1 AND 7),
  priority     INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 100),
  labels       TEXT    CHECK (json_type(labels) = 'object'),
  kind         TEXT,
  n_waiting    INTEGER NOT NULL CHECK (n_waiting >= 0),
  n_queued     INTEGER NOT NULL CHECK (n_queued >= 0),
  n_assigned   INTEGER NOT NULL CHECK (n_assigned >= 0),
  n_running    INTEGER NOT NULL CHECK (n_running >= 0),
  n_cancelling INTEGER NOT NULL CHECK (n_cancelling >= 0),
  n_succeeded  INTEGER NOT NULL CHECK (n_succeeded >= 0),
  n_failed     INTEGER NOT NULL CHECK (n_failed >= 0),
  n_timed_out  INTEGER NOT NULL CHECK (n_timed_out >= 0),
  n_cancelled  INTEGER NOT NULL CHECK (n_cancelled >= 0),
  n_skipped    INTEGER NOT NULL CHECK (n_skipped >= 0),
  progress     REAL    CHECK (progress BETWEEN 0 AND 1),
  created_at   INTEGER,
  started_at   INTEGER,
  finished_at  INTEGER,
  owner        TEXT,
  CHECK ((state >= 4) = (finished_at IS NOT NULL)),
  CHECK ((state >= 4) = (n_waiting + n_queued + n_assigned + n_running + n_cancelling = 0))
) STRICT;

CREATE INDEX job_live ON job (id) WHERE state < 4;

-- The spec stands apart, so that a change of a job's counts does not rewrite it.
CREATE TABLE job_spec (
  job  INTEGER PRIMARY KEY REFERENCES job (id),
  spec TEXT NOT NULL
) STRICT;

CREATE TABLE task_group (
  job          INTEGER NOT NULL REFERENCES job (id),
  idx          INTEGER NOT NULL CHECK (idx >= 0),
  name         TEXT    NOT NULL,
  first        INTEGER NOT NULL CHECK (first >= 0),
  size         INTEGER NOT NULL CHECK (size >= 1),
  next         INTEGER NOT NULL CHECK (next BETWEEN 0 AND size),
  rest         INTEGER NOT NULL CHECK (rest BETWEEN 1 AND 10 AND rest NOT IN (3, 4, 5)),
  rest_at      INTEGER,
  reason       TEXT,
  message      TEXT,
  n_waiting    INTEGER NOT NULL CHECK (n_waiting >= 0),
  n_queued     INTEGER NOT NULL CHECK (n_queued >= 0),
  n_assigned   INTEGER NOT NULL CHECK (n_assigned >= 0),
  n_running    INTEGER NOT NULL CHECK (n_running >= 0),
  n_cancelling INTEGER NOT NULL CHECK (n_cancelling >= 0),
  n_succeeded  INTEGER NOT NULL CHECK (n_succeeded >= 0),
  n_failed     INTEGER NOT NULL CHECK (n_failed >= 0),
  n_timed_out  INTEGER NOT NULL CHECK (n_timed_out >= 0),
  n_cancelled  INTEGER NOT NULL CHECK (n_cancelled >= 0),
  n_skipped    INTEGER NOT NULL CHECK (n_skipped >= 0),
  kept         INTEGER NOT NULL CHECK (kept IN (0, 1)),
  PRIMARY KEY (job, idx),
  CHECK (n_waiting + n_queued + n_assigned + n_running + n_cancelling
       + n_succeeded + n_failed + n_timed_out + n_cancelled + n_skipped = size)
) STRICT, WITHOUT ROWID;

CREATE TABLE task_group_spec (
  job      INTEGER NOT NULL,
  idx      INTEGER NOT NULL,
  resolved TEXT    NOT NULL,
  PRIMARY KEY (job, idx),
  FOREIGN KEY (job, idx) REFERENCES task_group (job, idx)
) STRICT;

-- A task is addressed by one number: job * 2^24 + its number in the job.
CREATE TABLE task (
  id          INTEGER PRIMARY KEY CHECK (id >= 1 << 24),
  grp         INTEGER NOT NULL CHECK (grp >= 0),
  name        TEXT    NOT NULL,
  kind        TEXT    NOT NULL,
  element     TEXT,
  created_at  INTEGER,
  state       INTEGER NOT NULL CHECK (state BETWEEN 1 AND 10),
  attempt     INTEGER NOT NULL CHECK (attempt >= 0),
  retried     INTEGER NOT NULL CHECK (retried >= 0),
  crashes     INTEGER NOT NULL CHECK (crashes >= 0),
  worker      TEXT,
  queued_at   INTEGER,
  not_before  INTEGER,
  assigned_at INTEGER,
  started_at  INTEGER,
  reason      TEXT,
  message     TEXT,
  exit_code   INTEGER,
  log_size    INTEGER CHECK (log_size >= 0),
  grant       TEXT,
  progress    REAL    CHECK (progress BETWEEN 0 AND 1),
  step        TEXT,
  metrics     TEXT,
  usage       TEXT,
  artifacts   TEXT,
  result      TEXT,
  finished_at INTEGER,
  CHECK ((state >= 6) = (finished_at IS NOT NULL)),
  CHECK (state NOT BETWEEN 3 AND 5 OR (worker IS NOT NULL AND attempt >= 1))
) STRICT;

-- The tasks that have not ended. It names no column that changes while a task
-- lives, so that it is written twice in a life and not at each step.
CREATE INDEX task_live ON task (id) WHERE finished_at IS NULL;

-- The tasks that ended and did not succeed: few among many, and asked for often.
CREATE INDEX task_not_succeeded ON task (state, id) WHERE state > 6;

CREATE TABLE attempt (
  task        INTEGER NOT NULL,
  n           INTEGER NOT NULL CHECK (n >= 1),
  worker      TEXT,
  outcome     INTEGER NOT NULL CHECK (outcome BETWEEN 1 AND 6),
  reason      TEXT,
  message     TEXT,
  exit_code   INTEGER,
  log_size    INTEGER CHECK (log_size >= 0),
  assigned_at INTEGER,
  started_at  INTEGER,
  finished_at INTEGER NOT NULL,
  usage       TEXT,
  artifacts   TEXT,
  PRIMARY KEY (task, n)
) STRICT, WITHOUT ROWID;

-- Reports of attempts that had been given up; for diagnosis only.
CREATE TABLE late_report (
  task   INTEGER NOT NULL,
  n      INTEGER NOT NULL CHECK (n >= 1),
  report TEXT    NOT NULL,
  PRIMARY KEY (task, n)
) STRICT;

CREATE TABLE worker (
  id           TEXT    PRIMARY KEY,
  name         TEXT    NOT NULL,
  state        TEXT    NOT NULL CHECK (state IN ('active', 'paused', 'draining', 'unreachable', 'gone')),
  version      TEXT,
  tags         TEXT,
  labels       TEXT,
  kinds        TEXT,
  price        REAL    NOT NULL CHECK (price >= 0),
  resources    TEXT    NOT NULL,
  paused       INTEGER NOT NULL CHECK (paused IN (0, 1)),
  draining     INTEGER NOT NULL CHECK (draining IN (0, 1)),
  joined_at    INTEGER,
  last_seen_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
  owner  TEXT    NOT NULL,
  key    TEXT    NOT NULL,
  digest TEXT    NOT NULL,
  job    INTEGER NOT NULL REFERENCES job (id),
  at     INTEGER NOT NULL,
  PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
