package api

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/api/keyring"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/tasklog"
)

// streamRecorder is the client of a stream: it records flushed data and times.
type streamRecorder struct {
	header  http.Header
	pending bytes.Buffer
	blocks  []string
	times   []time.Time
}

func (f *streamRecorder) Header() http.Header              { return f.header }
func (f *streamRecorder) WriteHeader(int)                  {}
func (f *streamRecorder) Write(b []byte) (int, error)      { return f.pending.Write(b) }
func (f *streamRecorder) SetWriteDeadline(time.Time) error { return nil }

func (f *streamRecorder) Flush() {
	for block := range strings.SplitAfterSeq(f.pending.String(), "\n\n") {
		if block != "" {
			f.blocks, f.times = append(f.blocks, block), append(f.times, time.Now())
		}
	}
	f.pending.Reset()
}

// withBus returns a server with a bus whose epoch is "e".
func withBus(cfg Config) *server {
	cfg.Events, cfg.Log = eventbus.New("e"), slog.New(slog.DiscardHandler)
	cfg.LinkSocket, cfg.LinkPoll = http.NotFoundHandler(), http.NotFoundHandler()
	return newServer(cfg)
}

// streamFor lets a client of project a follow a stream for some time, and returns what it got. Call it in a synctest bubble.
func streamFor(t *testing.T, d time.Duration, serve func(http.ResponseWriter, *http.Request) error) *streamRecorder {
	t.Helper()
	ctx := context.WithValue(caller.NewContext(t.Context(), auth.Principal{Project: "a"}), activeKeyCtxKey, &keyring.ActiveKey{})
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	got := &streamRecorder{header: http.Header{}}
	if err := serve(got, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)); err != nil {
		t.Fatal(err)
	}
	return got
}

// runEverySecond calls do once a second until the returned function is called.
func runEverySecond(do func(second int)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for second := 0; ; second++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
				do(second)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// The stream of a quiet project gets keep-alives while another project is busy, and their ids let a client resume after the events
// of the other project, even after the bus has dropped some of them.
func TestKeepAlivesOfAnIdleProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withBus(Config{})
		s.projects.Put(1, "a")
		s.projects.Put(2, "b")
		publish := func(n int, job muster.JobID) {
			s.Events.Publish(slices.Repeat([]muster.Event{{Type: muster.EventJob, Job: job}}, n))
		}
		publish(1, 1)
		stop := runEverySecond(func(int) { publish(eventbus.RingSize/50, 2) })
		got := streamFor(t, 61*time.Second, func(w http.ResponseWriter, r *http.Request) error {
			return s.watchEvents(w, r, &eventsInput{Last: "e-1"})
		})
		stop()
		if len(got.blocks) != 5 {
			t.Fatalf("a minute without an event of the project brought %d blocks, want the first and 4 keep-alives: %q", len(got.blocks), got.blocks)
		}
		for i := 1; i < len(got.times); i++ {
			if d := got.times[i].Sub(got.times[i-1]); d < streaming.KeepAlive || d > streaming.KeepAlive+time.Second {
				t.Errorf("keep-alive %d came after %s, want %s", i, d, streaming.KeepAlive)
			}
		}
		last := got.blocks[len(got.blocks)-1]
		comment, id, _ := strings.Cut(strings.TrimSpace(last), "\nid: ")
		if !strings.HasPrefix(comment, ":") {
			t.Fatalf("the last block is %q, want a comment and an id", last)
		}
		publish(1, 1)
		got = streamFor(t, time.Second, func(w http.ResponseWriter, r *http.Request) error {
			return s.watchEvents(w, r, &eventsInput{Last: id})
		})
		if len(got.blocks) != 2 || !strings.HasPrefix(got.blocks[1], "event: job\n") {
			t.Errorf("after %q came %q, want the new event of the project and no resync", id, got.blocks[1:])
		}
	})
}

// A filter that rejects all events does not delay the id.
func TestKeepAlivesOfAFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withBus(Config{})
		s.projects.Put(1, "a")
		stop := runEverySecond(func(int) { s.Events.Publish([]muster.Event{{Type: muster.EventJob, Job: 1}}) })
		got := streamFor(t, 16*time.Second, func(w http.ResponseWriter, r *http.Request) error {
			return s.watchEvents(w, r, &eventsInput{Last: "e-0", Type: []string{"worker"}})
		})
		stop()
		if len(got.blocks) != 2 || got.blocks[1] != ": muster\nid: e-14\n\n" && got.blocks[1] != ": muster\nid: e-15\n\n" {
			t.Errorf("the stream is %q, want a keep-alive with the id of the event that was published before it", got.blocks)
		}
	})
}

// runningTaskStore is a store with one running task of one attempt.
type runningTaskStore struct{ store.Reader }

func (runningTaskStore) Task(_ context.Context, id muster.TaskID) (muster.Task, error) {
	return muster.Task{ID: id, State: muster.Running, Attempt: 1}, nil
}

func (runningTaskStore) Attempts(_ context.Context, id muster.TaskID) ([]muster.Attempt, error) {
	return []muster.Attempt{{ID: muster.AttemptID{Task: id, N: 1}, Outcome: muster.AttemptOpen}}, nil
}

// The follower of a stream without output gets keep-alives while the other stream grows, and their ids avoid that the server reads
// the log again from the last sent line.
func TestKeepAlivesOfAnEmptyOutput(t *testing.T) {
	logs, err := tasklog.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := withBus(Config{Store: runningTaskStore{}, Logs: logs})
		place := logPosition{task: muster.TaskID{Job: 1}, attempt: 1}
		size := int64(0)
		sizes := map[int64]bool{}
		stop := runEverySecond(func(int) {
			record := tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Stdout, At: time.Now(), Data: []byte("out\n")})
			var err error
			if size, err = logs.Append(context.Background(), place.id(), size, record); err != nil {
				t.Error(err)
			}
			sizes[size] = true
		})
		got := streamFor(t, 61*time.Second, (&follower{server: s, pos: place, event: outputEvents(func(r tasklog.Record) bool { return inStream("stderr", r) }), follow: true}).serve)
		stop()
		if len(got.blocks) != 6 {
			t.Fatalf("a minute without output brought %d blocks, want the first, the attempt and 4 keep-alives: %q", len(got.blocks), got.blocks)
		}
		before := int64(0)
		for i, block := range got.blocks[2:] {
			offset, err := strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(block, ": muster\nid: 1-")), 10, 64)
			if err != nil || !sizes[offset] || offset <= before {
				t.Errorf("keep-alive %d is %q, want the id of a place after %d", i, block, before)
			}
			before = offset
		}
	})
}
