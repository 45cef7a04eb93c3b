-- +goose Up
-- The estimated space of a job's logs, since when the job is exempt from retention, and when its logs, and its artifacts and checkpoints,
-- were deleted.
ALTER TABLE job ADD COLUMN log_bytes            INTEGER NOT NULL DEFAULT 0 CHECK (log_bytes >= 0);
ALTER TABLE job ADD COLUMN kept_at              INTEGER;
ALTER TABLE job ADD COLUMN logs_removed_at      INTEGER;
ALTER TABLE job ADD COLUMN artifacts_removed_at INTEGER;
UPDATE job SET log_bytes = l.n FROM (
  SELECT job, sum(n + 4096) AS n
  FROM (SELECT id >> 24 AS job, log_size AS n FROM task WHERE log_size > 0 UNION ALL SELECT task >> 24, log_size FROM attempt WHERE log_size > 0)
  GROUP BY job
) AS l WHERE l.job = job.id;

-- Ended jobs by their end, those that have logs, and those that are kept.
CREATE INDEX job_ended ON job (project, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX job_logs ON job (project, finished_at, id, log_bytes) WHERE finished_at IS NOT NULL AND log_bytes > 0;
CREATE INDEX job_kept ON job (project, id) WHERE kept_at IS NOT NULL;

-- What refers to blobs.
CREATE INDEX job_spec_blobs ON job_spec (job) WHERE instr(spec, '"sha256:') > 0;
CREATE INDEX task_blobs ON task (id) WHERE artifacts IS NOT NULL OR checkpoint IS NOT NULL;
CREATE INDEX attempt_blobs ON attempt (task, n) WHERE artifacts IS NOT NULL;

CREATE INDEX late_report_at ON late_report (at, task, n);
CREATE INDEX job_end_job ON job_end (job);
CREATE INDEX api_key_job ON api_key (job) WHERE job IS NOT NULL;
CREATE INDEX api_key_expires ON api_key (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX api_key_worker ON api_key (worker) WHERE worker IS NOT NULL;

-- When a blob was last granted. NULL for grants to projects, and for those of before.
ALTER TABLE blob_grant ADD COLUMN at INTEGER;
CREATE INDEX blob_grant_worker ON blob_grant (holder, sha256, at) WHERE holder >= 'w:' AND holder < 'w;';

-- Jobs that were removed, and whose logs and rows in other tables are still to be deleted. Their numbers are not used again.
CREATE TABLE job_removal (
  job INTEGER PRIMARY KEY,
  at  INTEGER NOT NULL
) STRICT;

-- A content identifier is of a job that may be removed before it.
CREATE TABLE content_file (
  cid    TEXT    NOT NULL CHECK (length(cid) = 46),
  job    INTEGER NOT NULL,
  name   TEXT    NOT NULL,
  sha256 TEXT    NOT NULL,
  size   INTEGER NOT NULL CHECK (size >= 0),
  pin    INTEGER NOT NULL CHECK (pin BETWEEN 0 AND 2),
  proof  INTEGER NOT NULL CHECK (proof BETWEEN 0 AND 2),
  PRIMARY KEY (cid, job, sha256)
) STRICT, WITHOUT ROWID;
INSERT INTO content_file SELECT cid, job, name, sha256, size, pin, proof FROM content;
DROP TABLE content;
ALTER TABLE content_file RENAME TO content;
CREATE INDEX content_unpinned ON content (cid, sha256) WHERE pin = 0;
CREATE INDEX content_job ON content (job);

-- An idempotency key outlives its job.
CREATE TABLE idempotency_key (
  owner  TEXT    NOT NULL,
  key    TEXT    NOT NULL,
  digest TEXT    NOT NULL,
  job    INTEGER NOT NULL,
  at     INTEGER NOT NULL,
  PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
INSERT INTO idempotency_key SELECT owner, key, digest, job, at FROM idempotency;
DROP TABLE idempotency;
ALTER TABLE idempotency_key RENAME TO idempotency;
CREATE INDEX idempotency_at ON idempotency (at);

CREATE TABLE project_retention (
  project TEXT PRIMARY KEY,
  policy  TEXT NOT NULL CHECK (json_type(policy) = 'object')
) STRICT, WITHOUT ROWID;

-- When the default policies begin to apply, a week after the upgrade of a server that has jobs, and when the last pass was.
CREATE TABLE retention_start (
  one          INTEGER PRIMARY KEY CHECK (one = 1),
  at           INTEGER NOT NULL,
  last_pass_at INTEGER
) STRICT;
INSERT INTO retention_start (one, at) SELECT 1, CASE WHEN EXISTS (SELECT 1 FROM job) THEN (unixepoch() + 604800) * 1000 ELSE 0 END;
