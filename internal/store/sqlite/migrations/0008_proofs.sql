-- +goose Up
-- Whether a file has the identifier that its worker told: not looked at, it has, it has another one. And a job may have several files that are said to have
-- one: what one of its workers tells wrongly takes no other's place.
CREATE TABLE content_proof (
  cid    TEXT    NOT NULL CHECK (length(cid) = 46),
  job    INTEGER NOT NULL REFERENCES job (id),
  name   TEXT    NOT NULL,
  sha256 TEXT    NOT NULL,
  size   INTEGER NOT NULL CHECK (size >= 0),
  pin    INTEGER NOT NULL CHECK (pin BETWEEN 0 AND 2),
  proof  INTEGER NOT NULL CHECK (proof BETWEEN 0 AND 2),
  PRIMARY KEY (cid, job, sha256)
) STRICT, WITHOUT ROWID;
INSERT INTO content_proof SELECT cid, job, name, sha256, size, pin, 0 FROM content;
DROP TABLE content;
ALTER TABLE content_proof RENAME TO content;
CREATE INDEX content_unpinned ON content (cid, sha256) WHERE pin = 0;
