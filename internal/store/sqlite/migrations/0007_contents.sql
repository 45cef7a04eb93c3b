-- +goose Up
-- The files that results refer to by their content identifier, by the jobs that have them: each job's own worker says what has which identifier.
CREATE TABLE content (
  cid    TEXT    NOT NULL CHECK (length(cid) = 46),
  job    INTEGER NOT NULL REFERENCES job (id),
  name   TEXT    NOT NULL,
  sha256 TEXT    NOT NULL,
  size   INTEGER NOT NULL CHECK (size >= 0),
  pin    INTEGER NOT NULL CHECK (pin BETWEEN 0 AND 2), -- in an IPFS node: not yet, done, refused
  PRIMARY KEY (cid, job)
) STRICT, WITHOUT ROWID;

CREATE INDEX content_unpinned ON content (cid, sha256) WHERE pin = 0;
