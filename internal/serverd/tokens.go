package serverd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

// tokens are the tokens that this start generated or preset.
type tokens struct{ admin, join string }

// ensureTokens creates the first admin and join keys, and keys for preset tokens.
func ensureTokens(ctx context.Context, keys store.KeyStore, cfg Config) (tokens, error) {
	existing, err := keys.ListKeys(ctx)
	if err != nil {
		return tokens{}, err
	}
	var t tokens
	if t.admin, err = ensureToken(ctx, keys, existing, auth.Admin, cfg.AdminToken); err != nil {
		return tokens{}, err
	}
	t.join, err = ensureToken(ctx, keys, existing, auth.Join, cfg.JoinToken)
	return t, err
}

// gatewayKeyPrefix is the prefix of the names of gateways' keys, which are internal.
const gatewayKeyPrefix = "gateway "

// ensureToken returns the preset token, or a new one if no key has the role, else "".
func ensureToken(ctx context.Context, keys store.KeyStore, existing []store.Key, role auth.Role, preset string) (string, error) {
	token := preset
	if token == "" {
		for _, k := range existing {
			if k.Role == string(role) && !strings.HasPrefix(k.Name, gatewayKeyPrefix) {
				return "", nil
			}
		}
		token = newToken(role)
	} else if err := auth.CheckToken(token); err != nil {
		return "", err
	}
	return token, putKey(ctx, keys, existing, token, store.Key{Name: "first " + string(role), Role: string(role)})
}

func newToken(role auth.Role) string {
	var random [auth.RandomBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return auth.NewToken(role, random)
}

// putKey stores a key for a token, unless existing has one with the same project.
func putKey(ctx context.Context, keys store.KeyStore, existing []store.Key, token string, k store.Key) error {
	k.Hash = auth.Hash(token)
	for _, old := range existing {
		if old.Hash == k.Hash && old.Project == k.Project {
			return nil
		}
	}
	k.ID, k.CreatedAt = "k-"+k.Hash[:12], muster.NewTime(time.Now())
	return keys.PutKey(ctx, k)
}

// newEpoch returns a random name for this incarnation of the server.
func newEpoch() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
