-- +goose Up
-- When the job was last retried after it had ended; NULL if it never was.
ALTER TABLE job ADD COLUMN retried_at INTEGER;

-- A job that has ended does not wait.
DELETE FROM job_idle WHERE job IN (SELECT id FROM job WHERE state > 3);

-- A project's deliveries hide no others that are for the same host.
DROP INDEX delivery_due;
CREATE INDEX delivery_due ON delivery (host, project, next_at) WHERE next_at IS NOT NULL;
