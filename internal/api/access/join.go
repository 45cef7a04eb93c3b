package access

import (
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
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
)

func (a *Access) joinRoutes(rr *rest.Router) {
	rest.Handle(rr, rest.Route{ID: "join-worker", Method: http.MethodPost, Path: link.PathJoin, Tag: "workers",
		Summary: "Exchange a join token for a worker id and key", Verb: auth.JoinWorkers}, a.joinWorker)
}

type joinInput struct{ Body link.JoinRequest }

func (a *Access) joinWorker(ctx context.Context, in *joinInput) (*rest.Response[link.Joined], error) {
	worker := muster.WorkerID("w-" + strings.ToLower(rand.Text()[:12]))
	key := store.Key{Name: in.Body.Name, Role: string(auth.Worker), Worker: worker, CreatedAt: muster.NewTime(time.Now())}
	secret, err := fillKey(&key)
	rec := caller.Audit(ctx)
	rec.Object, rec.Detail = "worker/"+string(worker), "name "+in.Body.Name
	if err == nil {
		_, err = a.Enrol.Enroll(ctx, caller.FromContext(ctx).KeyID, key)
	}
	return rest.Respond(link.Joined{Worker: worker, Key: secret}), err
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
