package engine_test

import (
	"bytes"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
)

// hello returns the hello of a worker with very many slots.
func hello(id muster.WorkerID) *link.Hello {
	return &link.Hello{
		Version: link.Version, Worker: id, Name: string(id),
		Offer: muster.Offer{Kinds: []string{muster.KindNoop}, Resources: muster.Resources{CPUs: 10_000, Slots: 10_000, Memory: 1 << 40}},
	}
}

// TestManyStages assigns tasks of more stages than a session keeps: a worker that drops
// specs as early as allowed still has the spec of each assignment.
func TestManyStages(t *testing.T) {
	r := start(t)
	outbox := link.NewOutbox(1 << 17)
	if _, _, err := r.Open(t.Context(), hello("w1"), outbox.Post); err != nil {
		t.Fatal(err)
	}
	const jobs = link.MaxGroupSpecs + 300
	var submits sync.WaitGroup
	for range 50 {
		submits.Go(func() {
			for range jobs / 50 {
				if _, err := r.Submit(t.Context(), spec(1), store.IdempotencyKey{Owner: "me"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	submits.Wait() // all are submitted before the first frame is read
	known := map[int]bool{}
	for offers := 0; offers < jobs; {
		f, err := outbox.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Specs {
			known[f.Specs[i].Ref] = true
			delete(known, f.Specs[i].Ref-link.MaxGroupSpecs)
		}
		for _, a := range f.Assign {
			if !known[a.Ref] {
				t.Fatalf("offer %d is of stage %d, which the worker has dropped", offers, a.Ref)
			}
			offers++
		}
	}
}

// TestWorkersWithOneName tells a worker that another connected one has its name, also after sessions were replaced or have ended.
func TestWorkersWithOneName(t *testing.T) {
	r := start(t)
	open := func(id muster.WorkerID, name string, want bool) link.Session {
		t.Helper()
		h := hello(id)
		h.Name = name
		s, w, err := r.Open(t.Context(), h, func(*link.ToWorker) {})
		if err != nil {
			t.Fatal(err)
		}
		if w.SharedName != want {
			t.Errorf("%s, named %s: shared_name is %t", id, name, w.SharedName)
		}
		return s
	}
	open("w1", "box", false)
	open("w1", "box", false) // it reconnects before the server has noticed
	second := open("w2", "box", true)
	open("w1", "box", true)
	open("w3", "other", false)
	second.Close(false)
	if _, err := r.Workers(t.Context()); err != nil { // decided after the end
		t.Fatal(err)
	}
	open("w1", "box", false)
	open("w1", "new", false)
	open("w2", "box", false)
}

// TestLogsOfOtherWorkersAreRefused checks that a worker cannot write to the logs of attempts that are not
// its own, or create logs of unknown attempts.
func TestLogsOfOtherWorkersAreRefused(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	id := r.submit(t, 1)
	p.next(t, "an offer", assigns)
	other := &testSession{frames: make(chan *link.ToWorker, 10)}
	var err error
	if other.Session, _, err = r.Open(t.Context(), hello("w2"), func(f *link.ToWorker) { other.frames <- f }); err != nil {
		t.Fatal(err)
	}
	own := muster.AttemptID{Task: muster.TaskID{Job: id}, N: 1}
	for _, a := range []muster.AttemptID{own, {Task: own.Task, N: 2}, {Task: muster.TaskID{Job: id + 1}, N: 1}} {
		if err := other.Handle(t.Context(), &link.ToServer{Logs: []link.LogChunk{{Attempt: a, Data: []byte("forged")}}}); err != nil {
			t.Fatal(err)
		}
		// The bytes are acknowledged, so that it does not resend them forever.
		ack := other.next(t, "a log acknowledgement", func(f *link.ToWorker) bool { return len(f.LogAck) > 0 })
		if ack.LogAck[0] != (link.LogAck{Attempt: a, Size: 6}) {
			t.Errorf("the answer is %+v", ack.LogAck)
		}
		if n, err := r.logs.Size(t.Context(), a); n != 0 || err != nil {
			t.Errorf("the log of %s has %d bytes of another worker (%v)", a, n, err)
		}
	}
	if err := p.Handle(t.Context(), &link.ToServer{Finished: []muster.Report{succeeded(own)}}); err != nil {
		t.Fatal(err)
	}
	p.next(t, "an acknowledgement", func(f *link.ToWorker) bool { return len(f.FinishedAck) > 0 })
	// Its own worker may still send logs of an ended attempt.
	if err := p.Handle(t.Context(), &link.ToServer{Logs: []link.LogChunk{{Attempt: own, Data: []byte("tail")}}}); err != nil {
		t.Fatal(err)
	}
	log, err := r.logs.Open(t.Context(), own, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if got, err := io.ReadAll(log); err != nil || !bytes.Equal(got, []byte("tail")) {
		t.Errorf("the log is %q (%v)", got, err)
	}
}

// TestRefusedLogIsAcceptedLater checks that a log of an attempt that does not belong to the worker is accepted once it does: after a restored
// backup the numbers of lost jobs may be assigned again.
func TestRefusedLogIsAcceptedLater(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	a := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
	ship := func(text string) {
		t.Helper()
		if err := p.Handle(t.Context(), &link.ToServer{Logs: []link.LogChunk{{Attempt: a, Data: []byte(text)}}}); err != nil {
			t.Fatal(err)
		}
		p.next(t, "a log acknowledgement", func(f *link.ToWorker) bool { return len(f.LogAck) > 0 })
	}
	ship("of a lost time")
	if id := r.submit(t, 1); id != a.Task.Job {
		t.Fatalf("it is job %d", id)
	}
	p.next(t, "an offer", assigns)
	ship("its own")
	if n, err := r.logs.Size(t.Context(), a); n != int64(len("its own")) || err != nil {
		t.Errorf("its log has %d bytes (%v)", n, err)
	}
}

// TestUnknownAttemptsDelayOnlyTheirWorker checks that a worker which ships logs of attempts that never were does not
// have the store asked as fast as it can send.
func TestUnknownAttemptsDelayOnlyTheirWorker(t *testing.T) {
	r := start(t)
	p := r.connect(t)
	const frames, chunks = 2, 600
	began := time.Now()
	for i := range frames {
		f := &link.ToServer{}
		for k := range chunks {
			f.Logs = append(f.Logs, link.LogChunk{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1, Num: i*chunks + k}, N: 1}, Data: []byte("x")})
		}
		if err := p.Handle(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	// A thousand are free, and of the others each takes 10 ms.
	if took := time.Since(began); took < 1900*time.Millisecond {
		t.Errorf("%d lookups took only %s", frames*chunks, took)
	}
}

// TestExistingLogIsSetAside checks that an attempt of a job from before this start does not begin with existing output of the same number,
// which belongs to a lost job.
func TestExistingLogIsSetAside(t *testing.T) {
	r := start(t)
	id := r.submit(t, 1) // no worker is there
	r = r.restart(t)
	a := muster.AttemptID{Task: muster.TaskID{Job: id}, N: 1}
	if _, err := r.logs.Append(t.Context(), a, 0, []byte("of a lost time, and longer")); err != nil {
		t.Fatal(err)
	}
	p := r.connect(t)
	p.next(t, "an offer", assigns)
	if err := p.Handle(t.Context(), &link.ToServer{Logs: []link.LogChunk{{Attempt: a, Data: []byte("its own")}}}); err != nil {
		t.Fatal(err)
	}
	log, err := r.logs.Open(t.Context(), a, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	if got, err := io.ReadAll(log); err != nil || string(got) != "its own" {
		t.Errorf("the log is %q (%v)", got, err)
	}
	aside, err := filepath.Glob(filepath.Join(r.dir, "logs", id.String(), "0", "0.1.log.*"))
	if err != nil || len(aside) != 1 {
		t.Errorf("the other log is at %v (%v)", aside, err)
	}
}

// TestOwnerPolicyIsStored checks that the owner's policy of a hello or an offer is
// stored, so that a restarted server knows it before the worker reconnects.
func TestOwnerPolicyIsStored(t *testing.T) {
	r := start(t)
	h := hello("w1")
	h.Allow = &muster.Allow{Images: []string{"ghcr.io/acme/*"}, Env: []string{}}
	s, _, err := r.Open(t.Context(), h, func(*link.ToWorker) {})
	if err != nil {
		t.Fatal(err)
	}
	stored := func() *muster.Allow {
		t.Helper()
		rows, err := r.store.Workers(t.Context())
		if err != nil || len(rows) != 1 {
			t.Fatalf("workers: %v, %v", rows, err)
		}
		return rows[0].Allow
	}
	if diff := cmp.Diff(h.Allow, stored()); diff != "" {
		t.Errorf("after the hello (-want +got):\n%s", diff)
	}
	if err := s.Handle(t.Context(), &link.ToServer{Offer: &muster.Offer{Kinds: h.Kinds, Resources: h.Resources}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Workers(t.Context()); err != nil { // decided after the offer
		t.Fatal(err)
	}
	if got := stored(); got != nil {
		t.Errorf("after the offer: %+v", got)
	}
	s.Close(true)
}
