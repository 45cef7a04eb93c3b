-- +goose Up
CREATE TABLE api_key (
  id         TEXT    PRIMARY KEY,
  name       TEXT    NOT NULL,
  hash       TEXT    NOT NULL UNIQUE CHECK (length(hash) = 64),
  role       TEXT    NOT NULL,
  project    TEXT,
  worker     TEXT,
  created_at INTEGER NOT NULL,
  expires_at INTEGER
) STRICT, WITHOUT ROWID;
