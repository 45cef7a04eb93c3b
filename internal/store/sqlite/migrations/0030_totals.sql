-- +goose Up
-- The tasks of all jobs by project, so that a start need not read all jobs.
CREATE TABLE project_total (
  project      TEXT    PRIMARY KEY,
  n_waiting    INTEGER NOT NULL CHECK (n_waiting >= 0),
  n_queued     INTEGER NOT NULL CHECK (n_queued >= 0),
  n_assigned   INTEGER NOT NULL CHECK (n_assigned >= 0),
  n_running    INTEGER NOT NULL CHECK (n_running >= 0),
  n_cancelling INTEGER NOT NULL CHECK (n_cancelling >= 0),
  n_succeeded  INTEGER NOT NULL CHECK (n_succeeded >= 0),
  n_failed     INTEGER NOT NULL CHECK (n_failed >= 0),
  n_timed_out  INTEGER NOT NULL CHECK (n_timed_out >= 0),
  n_cancelled  INTEGER NOT NULL CHECK (n_cancelled >= 0),
  n_skipped    INTEGER NOT NULL CHECK (n_skipped >= 0)
) STRICT, WITHOUT ROWID;
INSERT INTO project_total
  SELECT project, sum(n_waiting), sum(n_queued), sum(n_assigned), sum(n_running), sum(n_cancelling), sum(n_succeeded), sum(n_failed),
    sum(n_timed_out), sum(n_cancelled), sum(n_skipped)
  FROM job GROUP BY project;
