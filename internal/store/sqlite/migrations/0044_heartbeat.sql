-- +goose Up
-- The interval of heartbeats that a worker asked for, in nanoseconds; NULL for the server's.
ALTER TABLE worker ADD COLUMN heartbeat INTEGER CHECK (heartbeat > 0);
