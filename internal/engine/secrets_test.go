package engine_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/testkit"
)

// fakeSecrets has one secret of project default, for workers with the tag trusted.
type fakeSecrets struct{ locked atomic.Bool }

// Version implements engine.Secrets.
func (f *fakeSecrets) Version(string, string) (string, bool) { return "1", true }

func (f *fakeSecrets) Values(project string, secrets []muster.Secret, tags []string) ([]muster.SecretValue, error) {
	switch {
	case project != muster.DefaultProject || secrets[0].Name != "TOKEN":
		return nil, muster.Errorf(muster.NotFound, "no such secret")
	case len(tags) == 0 || tags[0] != "trusted":
		return nil, muster.Errorf(muster.Forbidden, "only for trusted workers")
	case f.locked.Load():
		return nil, muster.Errorf(muster.Unavailable, "the key is missing")
	}
	return []muster.SecretValue{{Name: "TOKEN", Value: []byte("the value")}}, nil
}

func secretSpec(name string) *muster.Spec {
	s := spec(1)
	s.Tasks[0].Secrets = []muster.Secret{{Name: name}}
	return s.Normalize()
}

// The values of secrets are sent with an assignment, each time, to a worker that may have them.
func TestSecretsAreSentWithTheAssignment(t *testing.T) {
	secrets := &fakeSecrets{}
	r := start(t, func(cfg *engine.Config) { cfg.Secrets = secrets })
	frames := make(chan *link.ToWorker, 100)
	h := hello("w1")
	h.Tags = []string{"trusted"}
	s, _, err := r.Open(t.Context(), h, func(f *link.ToWorker) { frames <- f })
	if err != nil {
		t.Fatal(err)
	}
	p := &testSession{Session: s, frames: frames}
	for range 2 {
		if _, err := r.Submit(t.Context(), secretSpec("TOKEN"), store.IdempotencyKey{}); err != nil {
			t.Fatal(err)
		}
		got := p.next(t, "an assignment", assigns)
		if diff := cmp.Diff([]muster.SecretValue{{Name: "TOKEN", Value: []byte("the value")}}, got.Assign[0].Secrets); diff != "" {
			t.Error(diff)
		}
	}

	// The key is lost: the task waits, and says why.
	secrets.locked.Store(true)
	job, err := r.Submit(t.Context(), secretSpec("TOKEN"), store.IdempotencyKey{})
	if err != nil {
		t.Fatal(err)
	}
	r.awaitExplanation(t, job, "the key is missing")

	// The secret was deleted: the task fails.
	job, err = r.Submit(t.Context(), secretSpec("OTHER"), store.IdempotencyKey{})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, "the failure of the task", func() bool {
		task, err := r.store.Task(t.Context(), muster.TaskID{Job: job})
		return err == nil && task.State == muster.Failed && task.Reason == muster.BadReference && task.Message == "no such secret"
	})

	// The worker has the tag no more.
	secrets.locked.Store(false)
	offer := h.Offer
	offer.Tags = nil
	if err := p.Handle(t.Context(), &link.ToServer{Offer: &offer}); err != nil {
		t.Fatal(err)
	}
	if job, err = r.Submit(t.Context(), secretSpec("TOKEN"), store.IdempotencyKey{}); err != nil {
		t.Fatal(err)
	}
	r.awaitExplanation(t, job, "only for trusted workers")
	for len(frames) > 0 {
		if f := <-frames; len(f.Assign) > 0 {
			t.Errorf("it got %+v", f.Assign)
		}
	}
}

func (r *env) awaitExplanation(t *testing.T, job muster.JobID, want string) {
	t.Helper()
	testkit.Await(t, "the explanation "+want, func() bool {
		x, err := r.Explain(t.Context(), muster.TaskID{Job: job})
		return err == nil && strings.Contains(fmt.Sprintf("%+v", x), want)
	})
}

// Without TLS, secrets do not leave the server's machine.
func TestSecretsAreNotSentInTheClear(t *testing.T) {
	for _, c := range []struct {
		ip    string
		plain bool
		sent  bool
	}{
		{"192.0.2.7", false, false}, {"::ffff:192.0.2.7", false, false},
		{"192.0.2.7", true, true}, {"127.0.0.1", false, true}, {"::1", false, true}, {"::ffff:127.0.0.2", false, true}, {"", false, true},
	} {
		r := start(t, func(cfg *engine.Config) { cfg.Secrets, cfg.PlainSecrets = &fakeSecrets{}, c.plain })
		frames := make(chan *link.ToWorker, 100)
		h := hello("w1")
		h.Tags, h.RemoteIP, h.Address = []string{"trusted"}, c.ip, c.ip
		if _, _, err := r.Open(t.Context(), h, func(f *link.ToWorker) { frames <- f }); err != nil {
			t.Fatal(err)
		}
		job, err := r.Submit(t.Context(), secretSpec("TOKEN"), store.IdempotencyKey{})
		if err != nil {
			t.Fatal(err)
		}
		if !c.sent {
			r.awaitExplanation(t, job, "the server has no TLS")
			continue
		}
		p := &testSession{frames: frames}
		if f := p.next(t, "an assignment", assigns); len(f.Assign[0].Secrets) != 1 {
			t.Errorf("%s: %+v", c.ip, f.Assign)
		}
	}
}
