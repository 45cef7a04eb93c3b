package engine_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
)

// put stores a blob and returns its hash.
func (r *env) put(t *testing.T, data []byte) string {
	t.Helper()
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:])
	if err := r.blobs.Put(t.Context(), hash, 0, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	// As if worker w1 had uploaded it.
	if err := r.store.GrantBlobs(t.Context(), []store.Grantee{store.WorkerGrantee("w1")}, []store.Blob{{SHA256: hash, Size: int64(len(data))}}); err != nil {
		t.Fatal(err)
	}
	return hash
}

// putTree stores a tree of files, which need not be there.
func (r *env) putTree(t *testing.T, files ...string) string {
	t.Helper()
	tree := muster.Tree{Files: []muster.File{{Path: "latest", Link: "model.pt"}}}
	for i, hash := range files {
		tree.Files = append(tree.Files, muster.File{Path: strings.Repeat("m", i+1), Size: 1, SHA256: hash})
	}
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return r.put(t, data)
}

// TestIncompleteCheckpointIsIgnored has a worker that reports checkpoints that are not stored.
func TestIncompleteCheckpointIsIgnored(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	r.submit(t, 1)
	a := p.next(t, "an offer", assigns).Assign[0].Attempt
	absent := strings.Repeat("0", 64)
	good := r.putTree(t, r.put(t, []byte("weights")))
	report := func(hash string) string {
		t.Helper()
		f := &link.ToServer{Saved: []link.Saved{{Attempt: a, SHA256: hash}}, Started: []link.Started{{Attempt: a, At: 1}}}
		if err := p.Handle(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Workers(t.Context()); err != nil { // it is decided in turn
			t.Fatal(err)
		}
		task, err := r.store.Task(t.Context(), a.Task)
		if err != nil {
			t.Fatal(err)
		}
		return task.Checkpoint
	}
	if got := report(good); got != good {
		t.Fatalf("a whole one: %q", got)
	}
	for name, hash := range map[string]string{
		"no tree": absent, "a tree without its file": r.putTree(t, absent), "no tree at all": r.put(t, []byte("\x00")),
	} {
		if got := report(hash); got != good {
			t.Errorf("%s: the task continues from %q", name, got)
		}
	}
}

// TestHealAndDrainReachTheWorker heals and drains with a deadline, and checks what the worker
// receives.
func TestHealAndDrainReachTheWorker(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	r.submit(t, 1)
	a := p.next(t, "an offer", assigns).Assign[0].Attempt
	sick := muster.Resources{CPUs: 4, Slots: 4, Memory: 1 << 30, GPUs: []muster.GPU{{UUID: "GPU-1", Vendor: "nvidia", Name: "T4", Quarantined: "xid 79"}}}
	offer := &link.ToServer{Offer: &muster.Offer{Kinds: []string{muster.KindNoop}, Resources: sick}}
	if err := p.Handle(t.Context(), offer); err != nil {
		t.Fatal(err)
	}
	if err := r.Steer(t.Context(), "w1", muster.AdminRequest{Action: muster.ActionHeal}); err != nil {
		t.Fatal(err)
	}
	if f := p.next(t, "a heal", func(f *link.ToWorker) bool { return len(f.Heal) > 0 }); !slices.Equal(f.Heal, []string{"GPU-1"}) {
		t.Errorf("heal %v", f.Heal)
	}
	tooLong, now := muster.Duration(1<<62), muster.Duration(0)
	if err := r.Steer(t.Context(), "w1", muster.AdminRequest{Action: muster.ActionDrain, Timeout: &tooLong}); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("a deadline in a hundred years: %v", err)
	}
	if err := r.Steer(t.Context(), "w1", muster.AdminRequest{Action: muster.ActionDrain, Timeout: &now}); err != nil {
		t.Fatal(err)
	}
	f := p.next(t, "a stop", func(f *link.ToWorker) bool { return len(f.Cancel) > 0 })
	if c := f.Cancel[0]; c.Attempt != a || c.Reason != muster.Preempted || c.Drop {
		t.Errorf("%+v", c)
	}
	report := muster.Report{Attempt: a, Outcome: muster.AttemptFailed, Reason: muster.Preempted, FinishedAt: 1}
	if err := p.Handle(t.Context(), &link.ToServer{Finished: []muster.Report{report}}); err != nil {
		t.Fatal(err)
	}
	p.next(t, "a drain", func(f *link.ToWorker) bool { return f.Drain })
	task, err := r.store.Task(t.Context(), a.Task)
	if err != nil || task.State != muster.Queued || task.Reason != muster.Preempted || task.Crashes != 0 {
		t.Errorf("%+v, %v", task, err)
	}
}
