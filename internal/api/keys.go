package api

import (
	"context"
	"crypto/rand"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) keyRoutes() {
	handle(s, route{id: "create-key", method: http.MethodPost, path: apiPath("/keys"), tag: "keys",
		summary: "Make an API key; its secret is shown this once", verb: auth.ManageKeys, status: http.StatusCreated}, s.createKey)
	handle(s, route{id: "list-keys", method: http.MethodGet, path: apiPath("/keys"), tag: "keys",
		summary: "List the API keys", verb: auth.ManageKeys}, s.listKeys)
	handle(s, route{id: "revoke-key", method: http.MethodDelete, path: apiPath("/keys/{key}"), tag: "keys",
		summary: "Make an API key useless at once", verb: auth.ManageKeys}, s.revokeKey)
	handle(s, route{id: "whoami", method: http.MethodGet, path: apiPath("/whoami"), tag: "keys",
		summary: "Say who the caller is"}, s.whoami)
}

type createKeyInput struct{ Body wire.NewKey }

func (s *server) createKey(ctx context.Context, in *createKeyInput) (*response[wire.MadeKey], error) {
	role, err := auth.ParseRole(in.Body.Role)
	if err != nil {
		return nil, err
	}
	k := store.Key{Name: in.Body.Name, Role: string(role), Project: in.Body.Project, CreatedAt: muster.NewTime(time.Now())}
	if in.Body.TTL > 0 {
		k.ExpiresAt = k.CreatedAt.Add(in.Body.TTL)
	}
	secret, err := s.makeKey(ctx, &k)
	if err != nil {
		return nil, err
	}
	return respond(wire.MadeKey{Key: keyResponse(k), Secret: secret}), nil
}

// makeKey stores a key with a new id and a new secret, and returns the secret.
func (s *server) makeKey(ctx context.Context, k *store.Key) (string, error) {
	if err := checkName(k.Name); err != nil {
		return "", err
	}
	var id [5]byte
	var random [auth.RandomBytes]byte
	_, _ = rand.Read(id[:]) // never fails
	_, _ = rand.Read(random[:])
	secret := auth.NewToken(auth.Role(k.Role), random)
	k.ID, k.Hash = auth.NewID(id), auth.Hash(secret)
	return secret, s.Keys.PutKey(ctx, *k)
}

// checkName says whether a key or a worker may have a name.
func checkName(name string) error {
	invalid := func(r rune) bool { return !unicode.IsPrint(r) || r == '/' }
	if name == "" || len(name) > 64 || strings.TrimSpace(name) != name || strings.ContainsFunc(name, invalid) {
		return muster.Errorf(muster.Invalid, "%q is not a name: write 1 to 64 visible characters without a slash", name)
	}
	return nil
}

func keyResponse(k store.Key) wire.Key {
	return wire.Key{ID: k.ID, Name: k.Name, Role: k.Role, Project: k.Project, Job: k.Job, Worker: k.Worker, CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt}
}

func (s *server) listKeys(ctx context.Context, _ *struct{}) (*response[wire.Keys], error) {
	keys, err := s.Keys.ListKeys(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]wire.Key, len(keys))
	for i, k := range keys {
		list[i] = keyResponse(k)
	}
	return respond(wire.Keys{Keys: list}), nil
}

type keyPath struct {
	Key string `path:"key" maxLength:"64" doc:"id of a key"`
}

func (s *server) revokeKey(ctx context.Context, in *keyPath) (*struct{}, error) {
	if in.Key == principalOf(ctx).KeyID {
		return nil, muster.Errorf(muster.Conflict, "the key %s is the one that this request uses: revoke it with another one", in.Key)
	}
	keys, err := s.Keys.ListKeys(ctx)
	if err != nil {
		return nil, err
	}
	key := store.Key{ID: in.Key}
	if i := slices.IndexFunc(keys, func(k store.Key) bool { return k.ID == in.Key }); i >= 0 {
		key = keys[i]
	}
	if err := s.keyring.Revoke(ctx, key); err != nil {
		return nil, err
	}
	return nil, nil //nolint:nilnil // huma's form of an answer without a body
}

func (s *server) whoami(ctx context.Context, _ *struct{}) (*response[wire.Whoami], error) {
	p := principalOf(ctx)
	return respond(s.whoamiResponse(p)), nil
}

func (s *server) whoamiResponse(p auth.Principal) wire.Whoami {
	resp := wire.Whoami{
		Key: p.KeyID, Name: p.Name, Role: string(p.Role), Project: p.Project, Job: p.Job, Worker: p.Worker, ExpiresAt: p.Expires, Version: s.Version, Permissions: []string{},
	}
	for _, v := range auth.Permissions(p) {
		resp.Permissions = append(resp.Permissions, string(v))
	}
	if auth.Authorize(p, auth.JoinWorkers, auth.Object{}) == nil {
		resp.Download = &wire.Program{OS: runtime.GOOS, Arch: runtime.GOARCH}
	}
	return resp
}
