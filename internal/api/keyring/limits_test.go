package keyring

import (
	"testing"

	"github.com/muster-dev/muster/internal/auth"
)

// Links to jobs cannot block other keys.
func TestLinksLeaveCapacity(t *testing.T) {
	b := NewLimits(1_000)
	link, viewer := auth.Principal{Role: auth.Viewer, Job: 17}, auth.Principal{Role: auth.Viewer}
	var release []func()
	for range 10 {
		g := &ActiveKey{}
		for range 1_000 {
			if l, err := b.AcquireRequest(link, g); err == nil {
				release = append(release, l)
			}
		}
		if n := g.requests.Load(); n > 93 {
			t.Errorf("one link has %d requests", n)
		}
	}
	if len(release) != 375 || b.linkRequests.Load() != 375 || b.userRequests.Load() != 375 {
		t.Errorf("%d requests of links, counted %d and %d", len(release), b.linkRequests.Load(), b.userRequests.Load())
	}
	g := &ActiveKey{}
	if _, err := b.AcquireRequest(viewer, g); err != nil {
		t.Error(err)
	}
	for _, l := range release {
		l()
	}
	if b.linkRequests.Load() != 0 || b.userRequests.Load() != 1 {
		t.Errorf("%d and %d requests remain", b.linkRequests.Load(), b.userRequests.Load())
	}
}

// TestKeysOfProjectsHaveNothingReserved checks that all keys of a project together, of its administrators and workers too, leave requests for the
// workers, join tokens, operators and administrators of the server.
func TestKeysOfProjectsHaveNothingReserved(t *testing.T) {
	t.Parallel()
	b, got := NewLimits(1_000), int64(0)
	for range 100 {
		for _, role := range []auth.Role{auth.Admin, auth.Submitter, auth.Join, auth.Worker} {
			k := &ActiveKey{}
			for {
				if _, err := b.AcquireRequest(auth.Principal{Role: role, Project: "alpha"}, k); err != nil {
					break
				}
				got++
			}
		}
	}
	if got != b.maxUsers {
		t.Errorf("keys of a project have %d requests, not %d", got, b.maxUsers)
	}
	for _, role := range []auth.Role{auth.Admin, auth.Operator, auth.Join, auth.Worker} {
		if _, err := b.AcquireRequest(auth.Principal{Role: role}, &ActiveKey{}); err != nil {
			t.Errorf("a key of the role %s for all projects: %v", role, err)
		}
	}
}
