-- +goose Up
-- How many workers may still join by a key (NULL: any number), what it and the keys of its workers are bound to, whether its workers wait for
-- approval, or the worker of the key does, and the key by which the worker of a key joined.
ALTER TABLE api_key ADD COLUMN uses      INTEGER CHECK (uses >= 0);
ALTER TABLE api_key ADD COLUMN bounds    TEXT    CHECK (json_type(bounds) = 'object');
ALTER TABLE api_key ADD COLUMN approval  INTEGER NOT NULL DEFAULT 0 CHECK (approval IN (0, 1));
ALTER TABLE api_key ADD COLUMN joined_by TEXT;
CREATE INDEX api_key_bounds ON api_key (bounds) WHERE bounds IS NOT NULL;
CREATE INDEX api_key_approval ON api_key (expires_at) WHERE approval = 1 AND worker IS NOT NULL;

-- A worker may be pending.
CREATE TABLE worker_pending (
  id           TEXT    PRIMARY KEY,
  name         TEXT    NOT NULL,
  state        TEXT    NOT NULL CHECK (state IN ('pending', 'active', 'paused', 'draining', 'unreachable', 'gone')),
  version      TEXT,
  tags         TEXT,
  labels       TEXT,
  kinds        TEXT,
  price        REAL    NOT NULL CHECK (price >= 0),
  resources    TEXT    NOT NULL,
  paused       INTEGER NOT NULL CHECK (paused IN (0, 1)),
  draining     INTEGER NOT NULL CHECK (draining IN (0, 1)),
  joined_at    INTEGER,
  last_seen_at INTEGER,
  address      TEXT,
  deadline     INTEGER CHECK (deadline IS NULL OR draining = 1 OR paused = 1),
  allow        TEXT    CHECK (json_type(allow) = 'object'),
  own_kinds    TEXT    CHECK (length(own_kinds) > 0),
  lacks        TEXT    CHECK (json_valid(lacks)),
  projects     TEXT    CHECK (json_valid(projects)),
  pending      INTEGER NOT NULL DEFAULT 0 CHECK (pending IN (0, 1)),
  token        TEXT
) STRICT, WITHOUT ROWID;
INSERT INTO worker_pending (id, name, state, version, tags, labels, kinds, price, resources, paused, draining, joined_at, last_seen_at, address, deadline, allow,
  own_kinds, lacks, projects)
  SELECT id, name, state, version, tags, labels, kinds, price, resources, paused, draining, joined_at, last_seen_at, address, deadline, allow,
    own_kinds, lacks, projects FROM worker;
DROP TABLE worker;
ALTER TABLE worker_pending RENAME TO worker;
