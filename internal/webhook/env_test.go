package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/webhook"
)

// testTimeout is how long a test waits.
const testTimeout = 30 * time.Second

// env is a store with jobs, in which webhooks are started and stopped.
type env struct {
	*sqlite.Store
	t      *testing.T
	events *eventbus.Bus
	path   string
	cfg    webhook.Config
}

func newEnv(t *testing.T) *env {
	t.Helper()
	w := &env{t: t, events: eventbus.New("e1"), path: filepath.Join(t.TempDir(), "muster.db")}
	w.open()
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func (w *env) open() {
	w.t.Helper()
	var err error
	if w.Store, err = sqlite.Open(w.t.Context(), w.path, sqlite.Options{}); err != nil {
		w.t.Fatal(err)
	}
	w.cfg = webhook.Config{
		KeyFile: filepath.Join(filepath.Dir(w.path), "webhook.key"), Store: w.Store, Events: w.events, Version: "v1", Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, URL: "https://muster.example/",
		Log: slog.New(slog.DiscardHandler),
		Explain: func(_ context.Context, id muster.TaskID) (string, error) {
			return "task " + id.String() + " needs a GPU", nil
		},
	}
}

// restart reopens the store like after kill -9: it has exactly the committed rows.
func (w *env) restart() {
	w.t.Helper()
	if err := w.Close(); err != nil {
		w.t.Fatal(err)
	}
	w.open()
}

// run starts the Sender, and returns the function that stops it.
func (w *env) run() (hooks *webhook.Sender, stop func()) {
	w.t.Helper()
	hooks, err := webhook.New(w.t.Context(), w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := hooks.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	w.t.Cleanup(stop)
	return hooks, stop
}

// submit commits a job with notifications, whose only task is in a state.
func (w *env) submit(id muster.JobID, project string, list ...muster.Notify) {
	w.t.Helper()
	w.commit(id, project, muster.Queued, 0, &muster.Spec{Name: "train <model> & co", Notify: list, Tasks: []muster.TaskSpec{{Name: "stage", Kind: muster.KindNoop}}})
}

// end ends a job and publishes the event, like the engine.
func (w *env) end(id muster.JobID, project string, state muster.TaskState) {
	w.t.Helper()
	job := w.commit(id, project, state, muster.NewTime(time.Now()), nil)
	w.events.Publish([]muster.Event{{Type: muster.EventJob, Job: id, State: string(job.State)}})
}

// retry queues an ended job again.
func (w *env) retry(id muster.JobID, project string, at muster.Time) {
	w.t.Helper()
	w.commit(id, project, muster.Queued, 0, nil, func(j *muster.Job) { j.RetriedAt = at })
}

func (w *env) commit(id muster.JobID, project string, state muster.TaskState, at muster.Time, spec *muster.Spec, change ...func(*muster.Job)) muster.Job {
	w.t.Helper()
	now := muster.NewTime(time.Now())
	g := muster.Group{Job: id, Name: "stage", Size: 1, Materialized: 1, UnmaterializedState: muster.Queued}
	g.Counts[state] = 1
	j := muster.Job{ID: id, UID: "j" + id.String(), Name: "train <model> & co", Project: project, State: g.Counts.State(), Priority: 50, Counts: g.Counts, CreatedAt: now, FinishedAt: at, Spec: spec}
	task := muster.Task{ID: muster.TaskID{Job: id}, Job: id, Name: "stage", Kind: muster.KindNoop, State: state, CreatedAt: now, QueuedAt: now, FinishedAt: at}
	if state.HoldsResources() || state == muster.Failed {
		task.Worker, task.Attempt, task.Reason, task.Message = "w1", 1, muster.OutOfMemory, "needs <more> memory"
		j.StartedAt = now
	}
	for _, f := range change {
		f(&j)
	}
	rows := muster.Rows{Jobs: []muster.Job{j}, Groups: []muster.Group{g}, Tasks: []muster.Task{task}}
	if err := w.Commit(w.t.Context(), &store.Batch{Rows: rows}); err != nil {
		w.t.Fatal(err)
	}
	return j
}

// deliveryLog returns the delivery log.
func (w *env) deliveryLog(q store.DeliveryQuery) []store.Delivery {
	w.t.Helper()
	q.Limit = 1000
	list, _, err := w.Deliveries(w.t.Context(), q)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// waitFor polls until ok.
func (w *env) waitFor(name string, ok func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(testTimeout)
	for !ok() {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %s: %s; log: %+v", testTimeout, name, w.deliveryLog(store.DeliveryQuery{}))
		}
		time.Sleep(5 * time.Millisecond) // a poll with a deadline
	}
}

// waitIdle waits until all ends are processed and every delivery was attempted.
func (w *env) waitIdle() {
	w.t.Helper()
	w.waitFor("all is sent", func() bool {
		ends, err := w.JobEnds(w.t.Context(), 1)
		return err == nil && len(ends) == 0 && !slices.ContainsFunc(w.deliveryLog(store.DeliveryQuery{}), func(d store.Delivery) bool {
			return d.State() == store.DeliveryPending && d.Attempts == 0
		})
	})
}

// wantNoRequest fails if a receiver gets a request more when all is sent.
func (w *env) wantNoRequest(r *receiver) {
	w.t.Helper()
	w.waitIdle()
	select {
	case q := <-r.requests:
		w.t.Errorf("an unexpected request: %+v", q)
	default:
	}
}

// request is a received request.
type request struct {
	http.Header
	method, path string
	body         string
}

// receiver is an HTTP server that records requests.
type receiver struct {
	*httptest.Server
	requests chan request
	handler  func(http.ResponseWriter, *http.Request)
}

// newReceiver starts a receiver; answer, if not nil, answers.
func newReceiver(t *testing.T, answer func(http.ResponseWriter, *http.Request)) *receiver {
	t.Helper()
	r := &receiver{requests: make(chan request, 10_000), handler: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		r.requests <- request{q.Header.Clone(), q.Method, q.URL.Path, string(body)}
		if r.handler != nil {
			r.handler(w, q)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// next returns the next request.
func (r *receiver) next(t *testing.T) request {
	t.Helper()
	select {
	case q := <-r.requests:
		return q
	case <-time.After(testTimeout):
		t.Fatal("no request arrived")
		return request{}
	}
}

// verify is the receiver's half of Standard Webhooks, written after its specification and not after the sender.
func verify(t *testing.T, q request, secret string) {
	t.Helper()
	key := []byte(secret)
	if encoded, ok := strings.CutPrefix(secret, "whsec_"); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			t.Fatal(err)
		}
	}
	sent, err := strconv.ParseInt(q.Get("Webhook-Timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(sent, 0)).Abs() > 5*time.Minute {
		t.Errorf("timestamp %q", q.Get("Webhook-Timestamp"))
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(q.Get("Webhook-Id") + "." + q.Get("Webhook-Timestamp") + "." + q.body))
	for one := range strings.SplitSeq(q.Get("Webhook-Signature"), " ") {
		version, text, _ := strings.Cut(one, ",")
		got, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil && hmac.Equal(got, mac.Sum(nil)) {
			return
		}
	}
	t.Errorf("the signature %q is not right", q.Get("Webhook-Signature"))
}

// notify returns a notification for a receiver.
func (r *receiver) notify(path string, notify ...string) muster.Notify {
	return muster.Notify{URL: r.URL + path, On: notify}
}

func id(n int) muster.JobID { return muster.JobID(n) }
