-- +goose Up
-- What tells the jobs of a restored backup from those that were lost with it: the numbers of both are the same.
ALTER TABLE job ADD COLUMN uid TEXT;
UPDATE job SET uid = 'j' || lower(hex(randomblob(10)));

-- The database's identity, and how far it has come. Each commit counts seq up, and the file last-commit beside the database repeats this row: see mark.go.
CREATE TABLE life (
  one      INTEGER PRIMARY KEY CHECK (one = 1),
  id       TEXT    NOT NULL CHECK (length(id) = 32),
  seq      INTEGER NOT NULL CHECK (seq >= 0),
  next_job INTEGER NOT NULL CHECK (next_job >= 1)
) STRICT;
INSERT INTO life SELECT 1, lower(hex(randomblob(16))), 0, ifnull(max(id), 0) + 1 FROM job;
