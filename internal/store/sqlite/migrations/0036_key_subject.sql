-- +goose Up
-- The user whose sign-in made the key: the issuer and the subject of an OpenID Connect provider.
ALTER TABLE api_key ADD COLUMN subject TEXT;
