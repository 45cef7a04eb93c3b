package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

// tokens are the secrets that this start knows.
type tokens struct{ admin, join string }

// ensureTokens makes the first admin and join keys, and keys for preset tokens.
func ensureTokens(ctx context.Context, keys store.Keys, cfg Config) (tokens, error) {
	have, err := keys.ListKeys(ctx)
	if err != nil {
		return tokens{}, err
	}
	var t tokens
	if t.admin, err = ensureToken(ctx, keys, have, auth.Admin, cfg.AdminToken); err != nil {
		return tokens{}, err
	}
	t.join, err = ensureToken(ctx, keys, have, auth.Join, cfg.JoinToken)
	return t, err
}

// ensureToken returns the preset token, or a new one if no key has the role yet.
func ensureToken(ctx context.Context, keys store.Keys, have []store.Key, role auth.Role, preset string) (string, error) {
	token := preset
	if token == "" {
		for _, k := range have {
			if k.Role == string(role) {
				return "", nil
			}
		}
		var random [auth.RandomBytes]byte
		_, _ = rand.Read(random[:]) // never fails
		token = auth.NewToken(role, random)
	} else if err := auth.CheckToken(token); err != nil {
		return "", err
	}
	hash := auth.Hash(token)
	for _, k := range have {
		if k.Hash == hash {
			return token, nil
		}
	}
	return token, keys.PutKey(ctx, store.Key{
		ID: "k-" + hash[:12], Name: "first " + string(role), Hash: hash, Role: string(role), CreatedAt: muster.TimeOf(time.Now()),
	})
}

// newEpoch names this life of the server.
func newEpoch() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
