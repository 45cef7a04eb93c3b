-- +goose Up
-- Keys are dropped by age.
CREATE INDEX idempotency_at ON idempotency (at);
