-- +goose Up
-- Whether a file has the identifier that its worker told: not looked at, it has, it has another one.
ALTER TABLE content ADD COLUMN proof INTEGER NOT NULL DEFAULT 0 CHECK (proof BETWEEN 0 AND 2);
