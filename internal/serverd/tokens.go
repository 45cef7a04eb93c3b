package serverd

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

// tokens are the tokens that this start generated or preset.
type tokens struct {
	Admin string `json:"admin,omitempty"`
	Join  string `json:"join,omitempty"`
}

// firstTokensFile has the generated tokens until the program that started the server has shown them (Server.TokensShown). Only their
// hashes are in the database, so that a crash in between would lose them.
const firstTokensFile = "first-tokens"

// ensureTokens creates the first admin and join keys, and keys for preset tokens.
func ensureTokens(ctx context.Context, keys store.KeyStore, cfg Config) (tokens, error) {
	existing, err := keys.ListKeys(ctx)
	if err != nil {
		return tokens{}, err
	}
	path := filepath.Join(cfg.Data, firstTokensFile)
	unshown, err := readFirstTokens(path)
	if err != nil {
		return tokens{}, err
	}
	var t, generated tokens
	if t.Admin, generated.Admin, err = chooseToken(existing, auth.Admin, cfg.AdminToken, unshown.Admin); err != nil {
		return tokens{}, err
	}
	if t.Join, generated.Join, err = chooseToken(existing, auth.Join, cfg.JoinToken, unshown.Join); err != nil {
		return tokens{}, err
	}
	if generated != (tokens{}) && generated != unshown && !cfg.Private {
		data, err := json.Marshal(generated)
		if err != nil {
			return tokens{}, err
		}
		if err := atomicfile.Write(path, append(data, '\n'), 0o600); err != nil {
			return tokens{}, muster.Errorf(muster.StorageFull, "cannot write the first tokens: %w", err)
		}
	}
	if err := putFirstKey(ctx, keys, existing, auth.Admin, t.Admin); err != nil {
		return tokens{}, err
	}
	return t, putFirstKey(ctx, keys, existing, auth.Join, t.Join)
}

// putFirstKey stores the key of a token, if there is one.
func putFirstKey(ctx context.Context, keys store.KeyStore, existing []store.Key, role auth.Role, token string) error {
	if token == "" {
		return nil
	}
	return putKey(ctx, keys, existing, token, store.Key{Name: "first " + string(role), Role: string(role)})
}

// readFirstTokens returns the tokens of a start that may have ended before it showed them. A damaged file counts as none.
func readFirstTokens(path string) (tokens, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return tokens{}, nil
	}
	if err != nil {
		return tokens{}, muster.Errorf(muster.Internal, "cannot read the first tokens: %w", err)
	}
	var t tokens
	if json.Unmarshal(data, &t) != nil || t.Admin != "" && auth.CheckToken(t.Admin) != nil || t.Join != "" && auth.CheckToken(t.Join) != nil {
		return tokens{}, nil //nolint:nilerr // damaged: new ones are made
	}
	return t, nil
}

// TokensShown notes that generated tokens were shown: later starts do not return them again.
func (s *Server) TokensShown() error {
	err := os.Remove(filepath.Join(s.cfg.Data, firstTokensFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return muster.Errorf(muster.Internal, "cannot remove the shown tokens from the data directory: %w", err)
	}
	return nil
}

// gatewayKeyPrefix is the prefix of the names of gateways' keys, which are internal.
const gatewayKeyPrefix = "gateway "

// chooseToken returns the token of a role that this start knows, "" for none: the preset one, the unshown one unless its key was
// revoked, or a new one if no key has the role. generated is the token if it is not preset.
func chooseToken(existing []store.Key, role auth.Role, preset, unshown string) (token, generated string, err error) {
	if preset != "" {
		return preset, "", auth.CheckToken(preset)
	}
	found := false
	for _, k := range existing {
		if k.Role != string(role) || strings.HasPrefix(k.Name, gatewayKeyPrefix) {
			continue
		}
		found = true
		if unshown != "" && k.Hash == auth.Hash(unshown) {
			return unshown, unshown, nil
		}
	}
	if found {
		return "", "", nil
	}
	token = cmp.Or(unshown, newToken(role))
	return token, token, nil
}

// localJoinName is the name of the keys of NewJoinToken, and localJoinTTL their lifetime.
const (
	localJoinName = "worker of muster up"
	localJoinTTL  = muster.Duration(10 * time.Minute)
)

// NewJoinToken returns a new token with which a worker of this process can join. It expires after some minutes. For a worker that joins again, and that
// was reset, it replaces the secret of the token of the reset, with which the worker keeps its id.
func (s *Server) NewJoinToken(ctx context.Context, worker muster.WorkerID) (string, error) {
	existing, err := s.store.ListKeys(ctx)
	if err != nil {
		return "", err
	}
	now, token := muster.NewTime(time.Now()), newToken(auth.Join)
	for _, k := range existing {
		if worker != "" && k.Bounds != nil && k.Bounds.Worker == worker && k.ExpiresAt > now && k.Uses != nil && *k.Uses > 0 {
			k.Hash, k.Prefix = auth.Hash(token), auth.Prefix(token)
			return token, s.ownKeys().PutKeys(ctx, k)
		}
		if k.Name == localJoinName && k.Role == string(auth.Join) && k.ExpiresAt != 0 && k.ExpiresAt <= now {
			if err := s.ownKeys().DeleteKey(ctx, k.ID); err != nil && muster.CodeOf(err) != muster.NotFound {
				return "", err
			}
		}
	}
	return token, putKey(ctx, s.ownKeys(), nil, token, store.Key{Name: localJoinName, Role: string(auth.Join), ExpiresAt: now.Add(localJoinTTL)})
}

func newToken(role auth.Role) string {
	var random [auth.RandomBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	return auth.NewToken(role, random)
}

// putKey stores a key for a token, unless existing has one with the same project.
func putKey(ctx context.Context, keys store.KeyStore, existing []store.Key, token string, k store.Key) error {
	k.Hash, k.Prefix = auth.Hash(token), auth.Prefix(token)
	for _, old := range existing {
		if old.Hash == k.Hash && old.Project == k.Project {
			return nil
		}
	}
	k.ID, k.CreatedAt = "k-"+k.Hash[:12], muster.NewTime(time.Now())
	return keys.PutKeys(ctx, k)
}

// newEpoch returns a random name for this incarnation of the server.
func newEpoch() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
