-- +goose Up
-- The audit log: see package audit. Times never go back.
CREATE TABLE audit_log (
  seq       INTEGER PRIMARY KEY CHECK (seq > 0),
  at        INTEGER NOT NULL,
  key_id    TEXT    NOT NULL,
  key_name  TEXT    NOT NULL,
  role      TEXT    NOT NULL,
  worker    TEXT    NOT NULL,
  address   TEXT    NOT NULL,
  via       TEXT    NOT NULL,
  operation TEXT    NOT NULL,
  object    TEXT    NOT NULL,
  project   TEXT    NOT NULL,
  outcome   TEXT    NOT NULL CHECK (outcome IN ('allowed', 'denied', 'failed')),
  status    INTEGER NOT NULL,
  detail    TEXT    NOT NULL,
  request   TEXT    NOT NULL,
  n         INTEGER NOT NULL CHECK (n > 0),
  until_at  INTEGER NOT NULL,
  hash      TEXT    NOT NULL CHECK (length(hash) = 64)
) STRICT;
CREATE INDEX audit_log_at ON audit_log (at);

-- The last record that retention removed.
CREATE TABLE audit_base (
  one  INTEGER PRIMARY KEY CHECK (one = 1),
  seq  INTEGER NOT NULL CHECK (seq >= 0),
  hash TEXT    NOT NULL CHECK (length(hash) = 64)
) STRICT;
INSERT INTO audit_base VALUES (1, 0, '0000000000000000000000000000000000000000000000000000000000000000');
