-- +goose Up
-- Lists of jobs by what never changes of a job; the number of the job is the last column of each index.
CREATE INDEX job_project ON job (project);
CREATE INDEX job_name ON job (project, name);
CREATE INDEX job_kind ON job (kind) WHERE kind IS NOT NULL;
CREATE INDEX job_owner ON job (owner) WHERE owner IS NOT NULL;
CREATE INDEX job_created ON job (created_at);

-- The jobs that failed or timed out: few among many.
CREATE INDEX job_failed ON job (id) WHERE state IN (5, 6);

-- When the first attempt of a stage started, and when its last task ended. NULL for stages of before.
ALTER TABLE task_group ADD COLUMN started_at INTEGER;
ALTER TABLE task_group ADD COLUMN finished_at INTEGER;

-- What all ended attempts of a job used together.
ALTER TABLE job ADD COLUMN cost         REAL    NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN energy_wh    REAL    NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN cpu_seconds  REAL    NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN gpu_seconds  REAL    NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN wall_seconds REAL    NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN memory_peak  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN attempts     INTEGER NOT NULL DEFAULT 0;
-- The devices of attempts that did not end their task were not kept.
UPDATE job SET cost = u.cost, energy_wh = u.energy_wh, cpu_seconds = u.cpu_seconds, gpu_seconds = u.gpu_seconds, wall_seconds = u.wall_seconds,
  memory_peak = u.memory_peak, attempts = u.attempts
FROM (
  SELECT job, total(usage ->> 'cost') AS cost, total(usage ->> 'energy_wh') AS energy_wh, total(usage ->> 'cpu_seconds') AS cpu_seconds,
    total((usage ->> 'wall_seconds') * gpus) AS gpu_seconds, total(usage ->> 'wall_seconds') AS wall_seconds,
    ifnull(max(usage ->> 'memory_peak'), 0) AS memory_peak, count(*) AS attempts
  FROM (
    SELECT id >> 24 AS job, CAST(usage AS TEXT) AS usage, ifnull(json_array_length(CAST(grant AS TEXT), '$.gpus'), 0) AS gpus FROM task WHERE usage IS NOT NULL
    UNION ALL
    SELECT task >> 24, CAST(usage AS TEXT), 0 FROM attempt WHERE usage IS NOT NULL
  ) GROUP BY job
) AS u WHERE u.job = job.id;
