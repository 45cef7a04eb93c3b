package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/connlimit"
	"github.com/muster-dev/muster/internal/handshake"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
)

func (a *Access) joinRoutes(rr *rest.Router) {
	rest.Handle(rr, rest.Route{ID: "join-worker", Method: http.MethodPost, Path: link.PathJoin, Tag: "workers",
		Summary: "Register a worker and its public key with a join token", Verb: auth.JoinWorkers}, a.joinWorker)
	rest.Handle(rr, rest.Route{ID: "register-worker-key", Method: http.MethodPost, Path: link.PathKey, Tag: "workers",
		Summary: "Register a worker's public key in place of the bearer key that an earlier version gave it", Public: true}, a.registerKey)
	rest.Handle(rr, rest.Route{ID: "create-worker-session", Method: http.MethodPost, Path: link.PathSession, Tag: "workers", Public: true, Audit: rest.AuditDenials,
		Summary: "Issue the token of a worker's requests for a request that is signed with its key"}, a.createWorkerSession)
}

type joinInput struct{ Body link.JoinRequest }

func (a *Access) joinWorker(ctx context.Context, in *joinInput) (*rest.Response[link.Joined], error) {
	now := muster.NewTime(time.Now())
	key := store.Key{
		ID: newID(), Name: in.Body.Name, Hash: handshake.KeyHash(in.Body.PublicKey), Role: string(auth.Worker), Worker: cmp.Or(in.Body.Worker, muster.WorkerID("w-"+strings.ToLower(rand.Text()[:12]))), CreatedAt: now,
	}
	err := checkName(key.Name)
	if wrong := link.CheckWorkerID(in.Body.Worker); err == nil && wrong != nil {
		err = muster.Errorf(muster.Invalid, "the worker's id %w", wrong)
	}
	if err == nil {
		err = handshake.CheckJoin(in.Body.PublicKey, bearerHash(ctx), in.Body.Name, in.Body.At, in.Body.Proof)
	}
	if err == nil {
		err = handshake.CheckClock(in.Body.At, now)
	}
	if err == nil {
		key, err = a.Enrol.Enroll(ctx, caller.FromContext(ctx).KeyID, in.Body.Replaces, key)
	}
	if err == nil {
		a.Ring.Joined(key.Hash)
	}
	rec := caller.Audit(ctx)
	rec.Object, rec.Detail = "worker/"+string(key.Worker), "name "+in.Body.Name
	return rest.Respond(link.Joined{Worker: key.Worker, Server: a.Sessions.Server()}), err
}

// bearerHash returns the hash of the token of a request.
func bearerHash(ctx context.Context) string {
	return auth.Hash(auth.Bearer(rest.RequestOf(ctx).Header.Get("Authorization")))
}

type registerKeyInput struct{ Body link.KeyRequest }

// registerKey replaces the bearer key of a worker, which does not work from then on. The same request again has the same answer, so that a worker
// that lost the answer keeps its identity.
func (a *Access) registerKey(ctx context.Context, in *registerKeyInput) (*rest.Response[link.Joined], error) {
	p, registered, err := a.checkMove(ctx, &in.Body)
	if err == nil && !registered {
		err = a.move(ctx, bearerHash(ctx), handshake.KeyHash(in.Body.PublicKey))
	}
	return rest.Respond(link.Joined{Worker: p.Worker, Server: a.Sessions.Server()}), err
}

// checkMove returns the worker of a request to replace its bearer key, and whether that has been done. Who has no key waits here, before the lock
// under which keys are changed.
func (a *Access) checkMove(ctx context.Context, r *link.KeyRequest) (p auth.Principal, registered bool, err error) {
	from, bearer := connlimit.RemoteAddr(rest.RequestOf(ctx).RemoteAddr), bearerHash(ctx)
	if p, _, err = a.Ring.ByHash(ctx, from, bearer); muster.CodeOf(err) == muster.Unauthenticated {
		registered = true
		p, _, err = a.Ring.ByHash(ctx, from, handshake.KeyHash(r.PublicKey))
	}
	if err != nil {
		return p, registered, err
	}
	rec := caller.Audit(ctx)
	rec.Object = "worker/" + string(p.Worker)
	caller.Identify(rec, p)
	err = auth.Can(p, auth.ConnectWorker, auth.Object{})
	if err == nil {
		err = handshake.CheckMove(r.PublicKey, bearer, r.At, r.Proof)
	}
	if err == nil {
		err = handshake.CheckClock(r.At, muster.NewTime(time.Now()))
	}
	return p, registered, err
}

// move gives the key with a hash another one.
func (a *Access) move(ctx context.Context, bearer, hash string) error {
	a.changing.Lock()
	defer a.changing.Unlock()
	key, err := a.Keys.KeyByHash(ctx, bearer)
	if muster.CodeOf(err) == muster.NotFound {
		return muster.Errorf(muster.Unavailable, "the key was changed or revoked at the same time: try again")
	}
	if err != nil {
		return err
	}
	key.Hash, key.Prefix = hash, ""
	a.Ring.Joined(hash)
	return a.Ring.Rotate(ctx, key, nil, nil)
}

type createWorkerSessionInput struct{ Body handshake.SessionRequest }

func (a *Access) createWorkerSession(ctx context.Context, in *createWorkerSessionInput) (*rest.Response[handshake.SessionGrant], error) {
	r := &in.Body
	from := connlimit.RemoteAddr(rest.RequestOf(ctx).RemoteAddr)
	hash := handshake.KeyHash(r.PublicKey)
	p, active, err := a.Ring.ByPublicKey(ctx, from, hash)
	if err != nil && p.KeyID == "" {
		return nil, a.refusal(r, err)
	}
	if err != nil {
		return nil, err
	}
	if err := r.Check(a.Sessions.Server(), muster.NewTime(time.Now())); err != nil {
		a.Limits.Stale(ctx, from) // signatures cannot be guessed, and a worker whose clock is wrong has to learn that
		return nil, err
	}
	caller.Identify(caller.Audit(ctx), p)
	if err := auth.Can(p, auth.ConnectWorker, auth.Object{Worker: r.Worker}); err != nil {
		return nil, a.refusal(r, err)
	}
	if err := active.Allow(ctx); err != nil {
		return nil, err
	}
	grant, err := a.Sessions.Issue(r, hash)
	if err != nil {
		return nil, err
	}
	return rest.Respond(*grant), nil
}

// refusal signs an error that means that the server does not know a worker, or refuses it for good: a worker believes no other.
func (a *Access) refusal(r *handshake.SessionRequest, err error) error {
	switch code := muster.CodeOf(err); code {
	case muster.Unauthenticated, muster.Forbidden:
		return rest.WithHeader(err, handshake.RefusalHeader, a.Sessions.Refuse(r, code))
	default:
		return err
	}
}

// resetTTL is how long the token of a reset works.
const resetTTL = muster.Duration(time.Hour)

// ResetWorker revokes the keys of a worker, and makes a join token that works once, with which the worker joins again under its id, bound to what
// its key was bound to.
func (a *Access) ResetWorker(ctx context.Context, w *muster.Worker) (wire.MadeKey, error) {
	a.changing.Lock()
	defer a.changing.Unlock()
	keys, err := a.Keys.ListKeys(ctx)
	if err != nil {
		return wire.MadeKey{}, err
	}
	keys = slices.DeleteFunc(keys, func(k store.Key) bool { return k.Worker != w.ID && (k.Bounds == nil || k.Bounds.Worker != w.ID) })
	if len(keys) == 0 {
		return wire.MadeKey{}, muster.Errorf(muster.Conflict, "the key of worker %s was revoked, and its token expired: remove the worker and join it again", w.Name)
	}
	now := muster.NewTime(time.Now())
	last := keys[len(keys)-1] // the oldest first
	bounds := store.KeyBounds{Worker: w.ID}
	if last.Bounds != nil {
		bounds.Tags, bounds.Addresses = last.Bounds.Tags, last.Bounds.Addresses
	}
	token := store.Key{Name: "reset " + string(w.ID), Role: string(auth.Join), Project: last.Project, Approval: last.Approval, JoinedBy: last.JoinedBy, Uses: new(1), Bounds: &bounds, CreatedAt: now, ExpiresAt: now.Add(resetTTL)}
	secret, err := a.makeKey(ctx, &token)
	if err != nil {
		return wire.MadeKey{}, err
	}
	for i := range keys {
		if err := a.Ring.Revoke(ctx, keys[i]); err != nil && muster.CodeOf(err) != muster.NotFound {
			return wire.MadeKey{}, err
		}
	}
	return wire.MadeKey{Key: keyResponse(token), Secret: auth.WithPin(secret, a.Pin)}, nil
}

// Approve lets the keys of a pending worker take tasks, and returns after that is stored.
func (a *Access) Approve(ctx context.Context, id muster.WorkerID) error {
	if err := a.Enrol.Approve(ctx, id); err != nil {
		return err
	}
	keys, err := a.Keys.ListKeys(ctx)
	for i := range keys {
		if keys[i].Worker == id {
			a.Ring.Extended(keys[i].ID)
		}
	}
	return err
}

// bind gives a new key the bounds of the request.
func (a *Access) bind(ctx context.Context, in *wire.NewKey, k *store.Key) error {
	if len(in.Addresses) > 0 || len(in.Tags) > 0 {
		k.Bounds = &store.KeyBounds{Tags: in.Tags}
	}
	for _, text := range in.Addresses {
		n, err := parseNetwork(text)
		if err != nil {
			return err
		}
		k.Bounds.Addresses = append(k.Bounds.Addresses, n)
	}
	if in.Uses > 0 {
		k.Uses = &in.Uses
	}
	k.Approval = in.Approval
	if k.Role != string(auth.Join) && (k.Uses != nil || k.Approval || len(in.Tags) > 0) {
		return muster.Errorf(muster.Invalid, "uses, tags and approval are for keys with the role join: a key with the role %s has none", k.Role)
	}
	return a.checkTags(ctx, in.Tags, k.Project)
}

// parseNetwork reads a network, such as 10.0.0.0/8, or one address.
func parseNetwork(s string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		return netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()), nil
	}
	n, err := netip.ParsePrefix(s)
	if err != nil || n.Addr().Is4In6() {
		return netip.Prefix{}, muster.Errorf(muster.Invalid, "%q is not a network: use one such as 10.0.0.0/8, or an IP address", s)
	}
	return n.Masked(), nil
}

// checkTags checks the tags of a new join token. They are reserved for its workers, and so must not be those that other workers give themselves.
func (a *Access) checkTags(ctx context.Context, tags []string, project string) error {
	if len(tags) == 0 {
		return nil
	}
	if project != "" && caller.FromContext(ctx).Project != "" {
		return muster.Errorf(muster.Forbidden, "a key for project %q may not reserve tags, which are for all projects: use a key for all projects", project)
	}
	bound, err := a.Enrol.BoundTags(ctx)
	if err != nil {
		return err
	}
	workers, err := a.Workers.Workers(ctx)
	if err != nil {
		return err
	}
	for i, tag := range tags {
		if tag == "" || len(tag) > muster.MaxNameSize || strings.ContainsFunc(tag, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) || slices.Contains(tags[:i], tag) {
			return muster.Errorf(muster.Invalid, "invalid tag %q: use different tags of 1 to %d bytes without spaces", tag, muster.MaxNameSize)
		}
		if slices.Contains(bound, tag) {
			continue
		}
		for j := range workers {
			if slices.Contains(workers[j].Tags, tag) {
				return muster.Errorf(muster.Conflict, "worker %s has the tag %s, and a tag of a join token is reserved for its workers: choose another tag, or start that worker without it", workers[j].Name, tag)
			}
		}
	}
	return nil
}
