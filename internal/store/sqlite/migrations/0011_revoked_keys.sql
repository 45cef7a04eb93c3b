-- +goose Up
-- Keys of workers that were revoked, so that their workers are told so, and do not take
-- this server for one that lost its data.
CREATE TABLE revoked_key (
  hash   TEXT PRIMARY KEY CHECK (length(hash) = 64),
  worker TEXT NOT NULL
) STRICT, WITHOUT ROWID;
