package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

func (a *Access) keyRoutes(rr *rest.Router) {
	rest.Handle(rr, rest.Route{ID: "create-key", Method: http.MethodPost, Path: rest.Path("/keys"), Tag: "keys",
		Summary: "Create an API key; its secret is returned only once", Verb: auth.CreateKeys, Status: http.StatusCreated}, a.createKey)
	rest.Handle(rr, rest.Route{ID: "list-keys", Method: http.MethodGet, Path: rest.Path("/keys"), Tag: "keys",
		Summary: "List API keys", Verb: auth.ManageKeys}, a.listKeys)
	rest.Handle(rr, rest.Route{ID: "revoke-key", Method: http.MethodDelete, Path: rest.Path("/keys/{key}"), Tag: "keys",
		Summary: "Revoke an API key", Verb: auth.ManageKeys}, a.revokeKey)
	rest.Handle(rr, rest.Route{ID: "rotate-key", Method: http.MethodPost, Path: rest.Path("/keys/{key}/rotate"), Tag: "keys",
		Summary: "Give an API key a new secret, which is returned only once; the old one ends at once or after an overlap", Verb: auth.ManageKeys}, a.rotateKey)
	rest.Handle(rr, rest.Route{ID: "whoami", Method: http.MethodGet, Path: rest.Path("/whoami"), Tag: "keys", Shared: true,
		Summary: "Show the caller's key and permissions, and the server's version"}, a.whoami)
}

type createKeyInput struct{ Body wire.NewKey }

func (a *Access) createKey(ctx context.Context, in *createKeyInput) (*rest.Response[wire.MadeKey], error) {
	role, err := auth.ParseRole(in.Body.Role)
	if err != nil {
		return nil, err
	}
	by := caller.FromContext(ctx)
	project := cmp.Or(in.Body.Project, by.Project)
	rec := caller.Audit(ctx)
	rec.Project, rec.Detail = project, "role "+string(role)
	if err := auth.Can(by, auth.CreateKeys, auth.Object{Project: cmp.Or(project, auth.AllProjects), Role: role}); err != nil {
		return nil, err
	}
	if project != "" && !role.ForProject() {
		return nil, muster.Errorf(muster.Invalid, "a key with the role %s is for all projects: omit the project", role)
	}
	k := store.Key{Name: in.Body.Name, Role: string(role), Project: project, CreatedAt: muster.NewTime(time.Now())}
	if in.Body.TTL > 0 {
		k.ExpiresAt = k.CreatedAt.Add(in.Body.TTL)
	}
	if err := a.bind(ctx, &in.Body, &k); err != nil {
		return nil, err
	}
	secret, err := a.makeKey(ctx, &k)
	rec.Object = "key/" + k.ID
	return rest.Respond(wire.MadeKey{Key: keyResponse(k), Secret: auth.WithPin(secret, a.Pin)}), err
}

// makeKey stores a key with a new id and secret, and returns the secret.
func (a *Access) makeKey(ctx context.Context, k *store.Key) (string, error) {
	secret, err := fillKey(k)
	if err != nil {
		return "", err
	}
	return secret, a.Keys.PutKeys(ctx, *k)
}

// fillKey gives a key that has a name a new id and secret, and returns the secret.
func fillKey(k *store.Key) (string, error) {
	if err := checkName(k.Name); err != nil {
		return "", err
	}
	k.ID = newID()
	return newSecret(k), nil
}

func newID() string {
	var id [5]byte
	_, _ = rand.Read(id[:]) // never fails
	return auth.NewID(id)
}

// newSecret returns a new secret for a key and stores its hash in it.
func newSecret(k *store.Key) string {
	var random [auth.RandomBytes]byte
	_, _ = rand.Read(random[:]) // never fails
	secret := auth.NewToken(auth.Role(k.Role), random)
	k.Hash, k.Prefix = auth.Hash(secret), auth.Prefix(secret)
	return secret
}

// checkName checks the name of a key or a worker.
func checkName(name string) error {
	invalid := func(r rune) bool { return !unicode.IsPrint(r) || r == '/' }
	if name == "" || len(name) > 64 || strings.TrimSpace(name) != name || strings.ContainsFunc(name, invalid) {
		return muster.Errorf(muster.Invalid, "%q is not a valid name: use 1 to 64 printable characters without a slash", name)
	}
	return nil
}

func keyResponse(k store.Key) wire.Key {
	resp := wire.Key{
		ID: k.ID, Name: k.Name, Role: k.Role, Project: k.Project, Job: k.Job, Worker: k.Worker, Prefix: k.Prefix,
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, LastUsedAt: k.LastUsedAt, LastUsedFrom: k.LastUsedFrom,
		Uses: k.Uses, Approval: k.Approval, JoinedBy: k.JoinedBy,
	}
	if k.Rotated {
		resp.RotatedTo = k.Parent
	}
	if b := k.Bounds; b != nil {
		resp.Tags, resp.Addresses = b.Tags, b.Addresses
	}
	return resp
}

func (a *Access) listKeys(ctx context.Context, _ *struct{}) (*rest.Response[wire.Keys], error) {
	keys, err := a.Keys.ListKeys(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]wire.Key, 0, len(keys))
	for i := range keys {
		if mayManage(ctx, &keys[i]) {
			keys[i].LastUsedAt, keys[i].LastUsedFrom = a.Ring.LastUse(&keys[i])
			list = append(list, keyResponse(keys[i]))
		}
	}
	return rest.Respond(wire.Keys{Keys: list}), nil
}

type revokeKeyInput struct {
	Key     string `path:"key" maxLength:"64" doc:"id of a key"`
	Workers bool   `query:"workers" doc:"also revoke the keys of the workers that joined by this key, which may be revoked already"`
}

func (a *Access) revokeKey(ctx context.Context, in *revokeKeyInput) (*struct{}, error) {
	if in.Key == caller.FromContext(ctx).KeyID {
		return nil, muster.Errorf(muster.Conflict, "this request uses the key %s: revoke it with another key", in.Key)
	}
	a.changing.Lock()
	defer a.changing.Unlock()
	key, _, err := a.managedKey(ctx, in.Key)
	if err == nil {
		err = a.Ring.Revoke(ctx, key)
	}
	if !in.Workers || err != nil && muster.CodeOf(err) != muster.NotFound {
		return nil, err
	}
	joined, listErr := a.joinedBy(ctx, in.Key) // no worker joins by it any more
	if listErr != nil {
		return nil, listErr
	}
	if len(joined) == 0 {
		return nil, err
	}
	for i := range joined {
		if err := a.Ring.Revoke(ctx, joined[i]); err != nil && muster.CodeOf(err) != muster.NotFound {
			return nil, err
		}
	}
	return nil, nil //nolint:nilnil // no content
}

// joinedBy returns the keys of the workers that joined by a key, and the tokens of those that were reset, which the caller may manage.
func (a *Access) joinedBy(ctx context.Context, id string) ([]store.Key, error) {
	keys, err := a.Keys.ListKeys(ctx)
	return slices.DeleteFunc(keys, func(k store.Key) bool { return k.JoinedBy != id || !mayManage(ctx, &k) }), err
}

// mayManage reports whether the caller may manage a key: one of the caller's project, if it has one.
func mayManage(ctx context.Context, k *store.Key) bool {
	return auth.Can(caller.FromContext(ctx), auth.ManageKeys, auth.Object{Project: cmp.Or(k.Project, auth.AllProjects)}) == nil
}

// managedKey returns a key that the caller may manage, and its old secrets. There are no others: it returns NotFound.
func (a *Access) managedKey(ctx context.Context, id string) (key store.Key, rotated []store.Key, err error) {
	keys, err := a.Keys.ListKeys(ctx)
	if err != nil {
		return store.Key{}, nil, err
	}
	i := slices.IndexFunc(keys, func(k store.Key) bool { return k.ID == id })
	if i >= 0 {
		caller.Audit(ctx).Project = keys[i].Project
	}
	if i >= 0 && !mayManage(ctx, &keys[i]) {
		caller.Deny(ctx, muster.Errorf(muster.Forbidden, "the key %q may not manage this key, which is not of its project", caller.FromContext(ctx).Name))
	}
	if i < 0 || !mayManage(ctx, &keys[i]) {
		return store.Key{}, nil, muster.Errorf(muster.NotFound, "there is no key %s: muster keys list shows all", id)
	}
	key = keys[i]
	return key, slices.DeleteFunc(keys, func(k store.Key) bool { return !k.Rotated || k.Parent != id }), nil
}

// maxOverlap is the longest time that an old secret works beside the new one.
const maxOverlap = muster.Duration(30 * 24 * time.Hour)

type rotateInput struct {
	Key  string `path:"key" maxLength:"64" doc:"id of a key"`
	Body *wire.RotateKey
}

func (a *Access) rotateKey(ctx context.Context, in *rotateInput) (*rest.Response[wire.MadeKey], error) {
	var body wire.RotateKey
	if in.Body != nil {
		body = *in.Body
	}
	now := muster.NewTime(time.Now())
	a.changing.Lock()
	defer a.changing.Unlock()
	key, earlier, err := a.managedKey(ctx, in.Key)
	switch {
	case err != nil:
		return nil, err
	case body.Overlap > maxOverlap:
		return nil, muster.Errorf(muster.Invalid, "an old secret cannot work for another %s: the maximum is 30d", body.Overlap)
	case key.Rotated:
		return nil, muster.Errorf(muster.Conflict, "the key %s is an old secret of the key %s: rotate that one, or revoke this one", key.ID, key.Parent)
	case key.ExpiresAt != 0 && key.ExpiresAt <= now && body.TTL == 0:
		return nil, muster.Errorf(muster.Conflict, "the key %s expired at %s: give it a new lifetime with --ttl, or create another key", key.ID, key.ExpiresAt)
	case body.Overlap == 0 && key.ID == caller.FromContext(ctx).KeyID:
		return nil, muster.Errorf(muster.Conflict, "this request uses the key %s, and would end before it returns the new secret: rotate it with an overlap such as 1m, or with another key", key.ID)
	case key.Worker != "":
		return nil, muster.Errorf(muster.Conflict, "the key %s is of worker %s, which would lose its connection: drain and remove the worker, and join it again", key.ID, key.Worker)
	case key.Subject != "":
		return nil, muster.Errorf(muster.Conflict, "the key %s is of a sign-in of %s: revoke it, and sign in again", key.ID, key.Name)
	case key.Job != 0:
		return nil, muster.Errorf(muster.Conflict, "the key %s is a link to job %s: revoke it and share the job again", key.ID, key.Job)
	}
	// Old secrets end with the overlap or before: no rotation makes one valid for longer.
	end := now.Add(body.Overlap)
	var rotated *store.Key
	if body.Overlap > 0 && (key.ExpiresAt == 0 || key.ExpiresAt > now) {
		old := key
		old.ID, old.Parent, old.Rotated = newID(), key.ID, true
		old.ExpiresAt = earliest(key.ExpiresAt, end)
		rotated = &old
	}
	for i := range earlier {
		earlier[i].ExpiresAt = earliest(earlier[i].ExpiresAt, end)
	}
	secret := newSecret(&key)
	key.LastUsedAt, key.LastUsedFrom = 0, ""
	if body.TTL > 0 {
		key.ExpiresAt = now.Add(body.TTL)
	}
	if err := a.Ring.Rotate(ctx, key, rotated, earlier); err != nil {
		return nil, err
	}
	return rest.Respond(wire.MadeKey{Key: keyResponse(key), Secret: auth.WithPin(secret, a.Pin)}), nil
}

// earliest returns the earlier of two times, of which the first may be 0 for never.
func earliest(expiry, t muster.Time) muster.Time {
	if expiry == 0 {
		return t
	}
	return min(expiry, t)
}

// RevokeWorker revokes the keys of a worker.
func (a *Access) RevokeWorker(ctx context.Context, id muster.WorkerID) error {
	return a.revokeKeys(ctx, func(k *store.Key) bool { return k.Worker == id })
}

// revokeKeys revokes all keys that match.
func (a *Access) revokeKeys(ctx context.Context, match func(*store.Key) bool) error {
	keys, err := a.Keys.ListKeys(ctx)
	if err != nil {
		return err
	}
	for i := range keys {
		if !match(&keys[i]) {
			continue
		}
		if err := a.Ring.Revoke(ctx, keys[i]); err != nil && muster.CodeOf(err) != muster.NotFound {
			return err
		}
	}
	return nil
}

func (a *Access) whoami(ctx context.Context, _ *struct{}) (*rest.Response[wire.Whoami], error) {
	return rest.Respond(a.whoamiResponse(caller.FromContext(ctx))), nil
}

func (a *Access) whoamiResponse(p auth.Principal) wire.Whoami {
	resp := wire.Whoami{
		Key: p.KeyID, Name: p.Name, Role: string(p.Role), Project: p.Project, Job: p.Job, Worker: p.Worker, ExpiresAt: p.Expires, Limited: p.Limited, Version: a.Version, Permissions: []string{},
	}
	for _, v := range auth.Permissions(p) {
		resp.Permissions = append(resp.Permissions, string(v))
	}
	if auth.Can(p, auth.JoinWorkers, auth.Object{}) == nil {
		resp.Download = &wire.Program{OS: runtime.GOOS, Arch: runtime.GOARCH}
	}
	return resp
}
