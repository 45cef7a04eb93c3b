package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/tasklog"
)

func noop(n int) *muster.Spec {
	s := &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}
	if n > 1 {
		s.Tasks[0].Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: int64(n) - 1, Step: 1}}}
	}
	return s
}

func shell(script string) *muster.Spec {
	return &muster.Spec{Tasks: []muster.TaskSpec{{Run: &muster.Command{Shell: script}}}}
}

func submit(t *testing.T, c *client.Client, s *muster.Spec) muster.Job {
	t.Helper()
	job, err := c.Submit(t.Context(), s, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// faults wraps a server's handlers and injects faults.
type faults struct {
	refuse   atomic.Int32 // requests to answer with 503
	status   atomic.Int32 // requests are answered with it and code while refuse lasts; 0 means a bare 503
	code     atomic.Pointer[muster.Code]
	dropped  atomic.Int32 // requests to break off after they were carried out
	cutAfter atomic.Int64 // bytes of an answer's body before it is broken off; 0 means never
	cutReads atomic.Int64 // bytes of a request's body before it is broken off; 0 means never
	requests atomic.Int32
}

func (f *faults) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		switch {
		case f.refuse.Add(-1) >= 0 && f.status.Load() != 0:
			w.WriteHeader(int(f.status.Load()))
			if code := f.code.Load(); code != nil {
				_ = json.NewEncoder(w).Encode(wire.Problem{Code: *code, Detail: "refused"})
			}
			return
		case f.refuse.Load() >= 0:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case f.dropped.Add(-1) >= 0:
			next.ServeHTTP(discard{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		}
		if n := f.cutReads.Load(); n > 0 {
			r.Body = &truncatingBody{ReadCloser: r.Body, remaining: n}
		}
		if n := f.cutAfter.Load(); n > 0 {
			w = &truncatingWriter{ResponseWriter: w, remaining: n}
		}
		next.ServeHTTP(w, r)
	})
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

type truncatingWriter struct {
	http.ResponseWriter
	remaining int64
}

func (c *truncatingWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *truncatingWriter) Write(b []byte) (int, error) {
	part := b[:min(int64(len(b)), c.remaining)]
	_, _ = c.ResponseWriter.Write(part)
	if c.remaining -= int64(len(part)); c.remaining == 0 {
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return len(b), nil
}

type truncatingBody struct {
	io.ReadCloser
	remaining int64
}

func (c *truncatingBody) Read(b []byte) (int, error) {
	if c.remaining == 0 {
		panic(http.ErrAbortHandler)
	}
	n, err := c.ReadCloser.Read(b[:min(int64(len(b)), c.remaining)])
	c.remaining -= int64(n)
	return n, err
}

func start(t *testing.T) (*apitest.Server, *client.Client, *faults) {
	t.Helper()
	f := &faults{}
	s := apitest.Start(t, f.middleware)
	return s, s.Client(t), f
}

func TestLists(t *testing.T) {
	s, c, _ := start(t)
	w := s.ConnectWorker(t, "w1")
	submit(t, c, noop(1))
	w.Finish(w.StartNext(), muster.AttemptSucceeded, 0)
	spec := noop(25)
	spec.Labels = map[string]string{"team": "vision"}
	spec.Tasks[0].Resources.Memory = 1 << 40
	big := submit(t, c, spec)
	var ids []muster.JobID
	for job, err := range c.Jobs(t.Context(), client.JobQuery{Page: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, job.ID)
	}
	if !slices.Equal(ids, []muster.JobID{2, 1}) {
		t.Errorf("jobs %v, want newest first", ids)
	}
	for job, err := range c.Jobs(t.Context(), client.JobQuery{Labels: spec.Labels, States: []muster.JobState{muster.JobQueued}}) {
		if err != nil || job.ID != big.ID {
			t.Errorf("job %d, %v", job.ID, err)
		}
	}
	if _, err := c.Cancel(t.Context(), big.ID, []client.Span{{First: 3, Last: 7}}); err != nil {
		t.Fatal(err)
	}
	count := map[muster.TaskState]int{}
	last := -1
	for task, err := range c.Tasks(t.Context(), big.ID, client.TaskQuery{Page: 4}) {
		if err != nil || task.Index != last+1 {
			t.Fatalf("task %d after %d, %v", task.Index, last, err)
		}
		count[task.State]++
		last = task.Index
	}
	if count[muster.Cancelled] != 5 || count[muster.Queued] != 20 {
		t.Errorf("states %v", count)
	}
	var batch []int
	for task, err := range c.Tasks(t.Context(), big.ID, client.TaskQuery{States: []muster.TaskState{muster.Cancelled}, Spans: []client.Span{{First: 0, Last: 4}, {First: 7, Last: 20}}}) {
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, task.Index)
	}
	if !slices.Equal(batch, []int{3, 4, 7}) {
		t.Errorf("cancelled tasks in 0-4,7-20: %v", batch)
	}
}

func TestErrorsPreserveTheirCode(t *testing.T) {
	s, c, _ := start(t)
	_, err := c.Job(t.Context(), 99)
	if muster.CodeOf(err) != muster.NotFound {
		t.Errorf("no job: %v", err)
	}
	_, err = s.ClientWith(t, "nonsense").Workers(t.Context())
	if muster.CodeOf(err) != muster.Unauthenticated {
		t.Errorf("wrong token: %v", err)
	}
	_, err = s.ClientWith(t, s.CreateKey(t, auth.Viewer, "", "")).Submit(t.Context(), noop(1), client.SubmitOptions{})
	if muster.CodeOf(err) != muster.Forbidden {
		t.Errorf("viewer submits: %v", err)
	}
	_, err = c.Submit(t.Context(), &muster.Spec{Tasks: []muster.TaskSpec{{Kind: "nop"}, {Name: "a b", Needs: []string{"c"}, Kind: "noop"}}}, client.SubmitOptions{})
	var e *muster.Error
	if !errors.As(err, &e) || e.Code != muster.InvalidSpec || len(e.Fields) < 2 || !strings.Contains(e.Fields[0].Path, "tasks[0].kind") {
		t.Errorf("bad spec: %+v", err)
	}
	for _, url := range []string{"", "127.0.0.1:8700", "ftp://x", "http://"} {
		if _, err := client.New(url, "", client.Options{}); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("New(%q): %v", url, err)
		}
	}
}

func TestErrorNamesUnreachableServer(t *testing.T) {
	const url = "http://127.0.0.1:1" // an unused port
	c, err := client.New(url, "x", client.Options{RetryTimeout: time.Millisecond, StreamRetryTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, errCall := c.Workers(t.Context())
	_, errStream := c.Wait(t.Context(), 1)
	_, errUpload := c.UploadFolder(t.Context(), t.TempDir(), nil)
	for _, err := range []error{errCall, errStream, errUpload} {
		if muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), url) || !strings.Contains(err.Error(), "MUSTER_SERVER") {
			t.Errorf("got %v, want an Unavailable error that names %s and what to do", err, url)
		}
	}
}

func TestOtherServersAreDetected(t *testing.T) {
	s := apitest.Start(t, func(http.Handler) http.Handler { return http.NotFoundHandler() })
	_, err := s.Client(t).Job(t.Context(), 1)
	if muster.CodeOf(err) != muster.NotFound || !strings.Contains(err.Error(), "Muster server") {
		t.Errorf("got %v", err)
	}
}

// Every call that the server answers with "not done" is retried.
func TestUnavailableIsRetried(t *testing.T) {
	_, c, f := start(t)
	f.refuse.Store(2)
	job := submit(t, c, noop(1))
	f.refuse.Store(2)
	if _, err := c.Cancel(t.Context(), job.ID, nil); err != nil {
		t.Error(err)
	}
}

// A submission whose answer was lost creates one job; other changes are not sent
// twice.
func TestLostResponses(t *testing.T) {
	_, c, f := start(t)
	f.dropped.Store(1)
	if job := submit(t, c, noop(1)); job.ID != 1 {
		t.Errorf("job %d, want the first and only one", job.ID)
	}
	before := f.requests.Load()
	f.dropped.Store(1)
	if _, err := c.Cancel(t.Context(), 1, nil); muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("lost answer to cancel: %v", err)
	}
	if n := f.requests.Load() - before; n != 1 {
		t.Errorf("cancel was sent %d times", n)
	}
	f.dropped.Store(2)
	if _, err := c.Job(t.Context(), 1); err != nil {
		t.Errorf("a read was not repeated: %v", err)
	}
}

// A call that may have been done is retried only if it is idempotent; a call that was not
// done is always retried.
func TestOnlyUnexecutedRequestsAreRepeated(t *testing.T) {
	_, c, f := start(t)
	job := submit(t, c, shell("sleep 600"))
	unavailable, undetermined := muster.Unavailable, muster.Undetermined
	for _, tc := range []struct {
		name   string
		status int32
		code   *muster.Code
		sent   int32 // how often a cancellation is sent
	}{
		{"not done", 503, &unavailable, 2},
		{"undetermined", 504, &undetermined, 1},
		{"a proxy that lost the answer", 502, nil, 1},
		{"a proxy timeout", 504, nil, 1},
	} {
		f.status.Store(tc.status)
		f.code.Store(tc.code)
		before := f.requests.Load()
		f.refuse.Store(1)
		_, err := c.Cancel(t.Context(), job.ID, nil)
		if want := tc.sent == 1; want != (muster.CodeOf(err) == muster.Undetermined && err != nil) {
			t.Errorf("%s: the cancellation returned %v", tc.name, err)
		}
		if n := f.requests.Load() - before; n != tc.sent {
			t.Errorf("%s: the cancellation was sent %d times, want %d", tc.name, n, tc.sent)
		}
		f.refuse.Store(1)
		if _, err := c.Job(t.Context(), job.ID); err != nil {
			t.Errorf("%s: a read was not repeated: %v", tc.name, err)
		}
	}
}

func TestCallsStopWithTheirContext(t *testing.T) {
	s, _, f := start(t)
	c, err := client.New(s.URL, apitest.AdminToken, client.Options{RetryTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	f.refuse.Store(1 << 20)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Job(ctx, 1)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a refused call succeeded")
		}
	case <-time.After(time.Minute):
		t.Error("it continues after its context ended")
	}
}

// A followed log resumes after broken connections and a restart of the server: every line appears exactly once and in order.
func TestFollowedLogIsComplete(t *testing.T) {
	s, c, f := start(t)
	job := submit(t, c, shell("x"))
	w := s.ConnectWorker(t, "w1")
	id := w.StartNext()
	const lines = 400
	f.cutAfter.Store(5_000)
	var writer sync.WaitGroup
	writer.Go(func() {
		size := int64(0)
		for i := range lines {
			rec := apitest.EncodeRecord([]tasklog.Stream{tasklog.Stdout, tasklog.Stderr}[i%2], fmt.Sprintf("line %d\n", i))
			for len(rec) > 0 { // as it may come from a worker
				n := 1 + rand.IntN(len(rec))
				var err error
				if size, err = s.Logs.Append(context.Background(), id, size, rec[:n]); err != nil {
					t.Error(err)
					return
				}
				rec = rec[n:]
			}
			if i == lines/2 {
				s.Stop()
				s.Start(t)
				w = s.ConnectWorker(t, "w1", id)
			}
		}
		w.Finish(id, muster.AttemptSucceeded, size)
	})
	defer writer.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	for l, err := range c.Logs(ctx, muster.TaskID{Job: job.ID}, client.LogOptions{Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		stream := []string{client.Stdout, client.Stderr}[n%2]
		if want := fmt.Sprintf("line %d\n", n); string(l.Data) != want || l.Stream != stream || l.Attempt != 1 {
			t.Fatalf("got %d %s %q, want %s %q", l.Attempt, l.Stream, l.Data, stream, want)
		}
		n++
	}
	if n != lines {
		t.Errorf("%d lines, want %d", n, lines)
	}
}

func TestLogsCanBeClosedEarly(t *testing.T) {
	s, c, _ := start(t)
	job := submit(t, c, shell("x"))
	w := s.ConnectWorker(t, "w1")
	id := w.StartNext()
	if _, err := s.Logs.Append(t.Context(), id, 0, append(apitest.EncodeRecord(tasklog.Stdout, "a\n"), apitest.EncodeRecord(tasklog.Stdout, "b\n")...)); err != nil {
		t.Fatal(err)
	}
	for l, err := range c.Logs(t.Context(), muster.TaskID{Job: job.ID}, client.LogOptions{Follow: true, Tail: 1}) {
		if err != nil || string(l.Data) != "b\n" {
			t.Fatalf("%q, %v", l.Data, err)
		}
		break
	}
	for _, err := range c.Logs(t.Context(), muster.TaskID{Job: 9}, client.LogOptions{}) {
		if muster.CodeOf(err) != muster.NotFound {
			t.Errorf("no such task: %v", err)
		}
	}
}

// A stream without events resumes after the id of the last keep-alive, and KeepAlive is called for each.
func TestEventsResumeAfterKeepAlive(t *testing.T) {
	last := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		last <- r.Header.Get("Last-Event-ID")
		if len(last) == 1 {
			_, _ = io.WriteString(w, ": muster\n\n: muster\nid: e-7\n\n")
			return
		}
		_, _ = io.WriteString(w, ": muster\n\nid: e-8\nevent: job\ndata: {\"type\":\"job\",\"job\":3}\n\n")
	}))
	defer server.Close()
	c, err := client.New(server.URL, "", client.Options{RetryTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var keepAlives []string
	for e, err := range c.Events(t.Context(), client.EventQuery{Last: "e-5", KeepAlive: func(id string) { keepAlives = append(keepAlives, id) }}) {
		if err != nil || e.Job != 3 {
			t.Fatalf("got %+v, %v; want the event of job 3", e, err)
		}
		break
	}
	if first, second := <-last, <-last; first != "e-5" || second != "e-7" || !slices.Equal(keepAlives, []string{"", "e-7", ""}) {
		t.Errorf("the requests resumed after %q and %q, and the keep-alives had the ids %q", first, second, keepAlives)
	}
}

// Wait continues after a restart of the server.
func TestWaitAcrossARestart(t *testing.T) {
	s, c, f := start(t)
	job := submit(t, c, noop(1))
	before := f.requests.Load()
	result := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		done, err := c.Wait(ctx, job.ID)
		if err == nil && done.State != muster.JobSucceeded {
			err = fmt.Errorf("state %s", done.State)
		}
		result <- err
	}()
	for f.requests.Load() == before {
		runtime.Gosched()
	}
	s.Stop()
	s.Start(t)
	w := s.ConnectWorker(t, "w1")
	w.Finish(w.StartNext(), muster.AttemptSucceeded, 0)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestWorkersAndKeys(t *testing.T) {
	s, c, _ := start(t)
	s.ConnectWorker(t, "w1")
	for _, steer := range []struct {
		do   func(context.Context, string) (muster.Worker, error)
		want muster.WorkerState
	}{
		{func(ctx context.Context, w string) (muster.Worker, error) { return c.PauseWorker(ctx, w, nil) }, muster.WorkerPaused},
		{c.ResumeWorker, muster.WorkerActive},
	} {
		if w, err := steer.do(t.Context(), "name-of-w1"); err != nil || w.State != steer.want {
			t.Errorf("worker %+v, %v; want %s", w, err, steer.want)
		}
	}
	if err := c.RemoveWorker(t.Context(), "w1"); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("removing a connected worker: %v", err)
	}
	created, err := c.CreateKey(t.Context(), client.NewKey{Name: "ci", Role: "submitter", TTL: muster.Duration(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	whoami, err := s.ClientWith(t, created.Secret).Whoami(t.Context())
	if err != nil || whoami.Name != "ci" || whoami.Role != "submitter" {
		t.Errorf("whoami: %+v, %v", whoami, err)
	}
	if err := c.RevokeKey(t.Context(), created.Key.ID); err != nil {
		t.Fatal(err)
	}
	keys, err := c.Keys(t.Context())
	if err != nil || slices.ContainsFunc(keys, func(k client.Key) bool { return k.Name == "ci" }) {
		t.Errorf("keys after revoking: %+v, %v", keys, err)
	}
}
