-- +goose Up
-- Who may read a blob, and how many bytes it has: the projects whose clients uploaded it or whose jobs made or use it
-- ('p:' and the name), and the workers that uploaded it ('w:' and the id).
CREATE TABLE blob_grant (
  sha256 TEXT    NOT NULL CHECK (length(sha256) = 64),
  holder TEXT    NOT NULL,
  size   INTEGER NOT NULL CHECK (size >= 0),
  PRIMARY KEY (sha256, holder)
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO blob_grant
  SELECT f.value ->> 'sha256', 'p:' || job.project, f.value ->> 'size'
  FROM task JOIN job ON job.id = task.id >> 24, json_each(CAST(task.artifacts AS TEXT)) AS f
  WHERE length(f.value ->> 'sha256') = 64;
INSERT OR IGNORE INTO blob_grant
  SELECT f.value ->> 'sha256', 'p:' || job.project, f.value ->> 'size'
  FROM attempt JOIN job ON job.id = attempt.task >> 24, json_each(CAST(attempt.artifacts AS TEXT)) AS f
  WHERE length(f.value ->> 'sha256') = 64;

-- Late reports are shown now, and only kept for attempts that were. Nobody could see those of before.
DELETE FROM late_report;
ALTER TABLE late_report ADD COLUMN worker TEXT;
ALTER TABLE late_report ADD COLUMN at INTEGER;
