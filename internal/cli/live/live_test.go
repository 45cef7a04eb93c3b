package live

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// A batch has the last event of each subject, and is bounded: if there are more subjects than it can have, everything is read again.
func TestBatches(t *testing.T) {
	f := New(nil, client.EventQuery{})
	task := func(n int, state string) muster.Event {
		return muster.Event{Epoch: "e", Seq: uint64(n), Type: muster.EventTask, Task: &muster.TaskID{Job: 1, Num: n}, State: state}
	}
	f.add(task(7, "assigned"))
	f.add(task(8, "assigned"))
	f.add(task(7, "running"))
	b := f.Pop()
	if b.Resync || len(b.Events) != 2 || b.Events[0].State != "running" || b.Events[1].Task.Num != 8 {
		t.Errorf("the batch is %+v, want the last events of tasks 7 and 8", b)
	}
	if b = f.Pop(); b.Resync || len(b.Events) > 0 {
		t.Errorf("the second batch is %+v, want none", b)
	}
	for n := range 10 * MaxEvents {
		f.add(task(n, "running"))
	}
	if len(f.events) > MaxEvents || len(f.order) > MaxEvents {
		t.Errorf("%d events are held, want at most %d", len(f.events), MaxEvents)
	}
	if b = f.Pop(); !b.Resync || len(b.Events) > 0 {
		t.Errorf("after too many events the batch has All=%v and %d events, want all to be read again", b.Resync, len(b.Events))
	}
	f.add(muster.Event{Type: muster.EventResync})
	if b = f.Pop(); !b.Resync {
		t.Error("after a resync not all is read again")
	}
}

// After a broken connection a feed reports when it reconnects, waits longer each time, and resumes after the last event.
func TestFeedReconnects(t *testing.T) {
	var connections atomic.Int64
	var last atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last.Store(r.Header.Get("Last-Event-ID"))
		switch connections.Add(1) {
		case 1: // an event, and the connection ends
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("id: e-5\nevent: job\ndata: {\"epoch\":\"e\",\"seq\":5,\"type\":\"job\",\"job\":3}\n\n"))
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"code":"forbidden","detail":"the key was revoked"}`))
		}
	}))
	defer server.Close()
	c, err := client.New(server.URL, "", client.Options{RetryTimeout: time.Nanosecond, StreamRetryTimeout: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	f := New(c, client.EventQuery{})
	ended := make(chan error, 1)
	go func() { ended <- f.Run(t.Context()) }()
	<-f.Changed()
	if b := f.Pop(); len(b.Events) != 1 || b.Events[0].Job != 3 {
		t.Errorf("the batch is %+v, want the event of job 3", b)
	}
	loss := f.Loss()
	for ; loss.Err == nil; loss = f.Loss() { // one element of Changed may be for the event and for the loss
		<-f.Changed()
	}
	if time.Until(loss.RetryAt) > time.Second {
		t.Errorf("the loss is %+v, want a retry within a second", loss)
	}
	if err := <-ended; muster.CodeOf(err) != muster.Forbidden || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("the feed ended with %v, want that the key was revoked", err)
	}
	if got := last.Load(); got != "e-5" {
		t.Errorf("it resumed after %q, want e-5", got)
	}
}

// A connection that resumes without any event is back as soon as the server speaks, and the ids of its keep-alives count.
func TestFeedResumesWithoutEvents(t *testing.T) {
	var connections atomic.Int64
	last := make(chan string, 2)
	leave := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		switch connections.Add(1) {
		case 1: // an event, and the connection ends
			_, _ = w.Write([]byte(": muster\n\nid: e-5\nevent: job\ndata: {\"epoch\":\"e\",\"seq\":5,\"type\":\"job\",\"job\":3}\n\n"))
		case 2:
			last <- r.Header.Get("Last-Event-ID")
			_, _ = w.Write([]byte(": muster\n\n: muster\nid: e-9\n\n"))
			_ = http.NewResponseController(w).Flush()
			<-leave
		default:
			last <- r.Header.Get("Last-Event-ID")
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	c, err := client.New(server.URL, "", client.Options{RetryTimeout: time.Nanosecond, StreamRetryTimeout: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	f := New(c, client.EventQuery{})
	ended := make(chan error, 1)
	go func() { ended <- f.Run(t.Context()) }()
	changed := func() {
		t.Helper()
		select {
		case <-f.Changed():
		case <-time.After(30 * time.Second):
			close(leave)
			t.Fatal("nothing changed")
		}
	}
	for f.Loss().Err == nil {
		changed()
	}
	for f.Loss().Err != nil {
		changed()
	}
	if b := f.Pop(); b.Resync || len(b.Events) != 1 {
		t.Errorf("the batch is %+v, want the event of job 3 only", b)
	}
	close(leave)
	if err := <-ended; muster.CodeOf(err) != muster.Forbidden {
		t.Errorf("the feed ended with %v, want that it is forbidden", err)
	}
	if first, second := <-last, <-last; first != "e-5" || second != "e-9" {
		t.Errorf("it resumed after %q and %q, want e-5 and e-9", first, second)
	}
}

func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(nil, client.EventQuery{})
		for tries, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
			f.setLost(context.DeadlineExceeded, retryDelay(tries))
			if wait := time.Until(f.Loss().RetryAt); wait != want {
				t.Errorf("try %d is after %v, want %v", tries, wait, want)
			}
		}
	})
}
