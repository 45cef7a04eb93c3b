package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/traceparent"
	"github.com/muster-dev/muster/internal/webhook"
)

func TestEndOfJobIsSentSigned(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	hooks, _ := w.run()
	r := newReceiver(t, nil)
	own := r.notify("/own", muster.OnFailed)
	own.Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	sealed, err := hooks.Seal([]muster.Notify{own})
	if err != nil {
		t.Fatal(err)
	}
	w.submit(1, "vision", sealed...)
	w.end(1, "vision", muster.Failed)
	q := r.next(t)
	verify(t, q, own.Secret)
	if q.method != "POST" || q.path != "/own" || q.Get("Content-Type") != "application/json" || q.Get("User-Agent") != "Muster/v1" {
		t.Errorf("request %+v", q)
	}
	var m struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      struct {
			Message  string     `json:"message"`
			Project  string     `json:"project"`
			URL      string     `json:"url"`
			Job      muster.Job `json:"job"`
			Failures []struct {
				Task    string `json:"task"`
				Reason  string `json:"reason"`
				Message string `json:"message"`
				Worker  string `json:"worker"`
			} `json:"failures"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(q.body), &m); err != nil {
		t.Fatal(err)
	}
	if m.Type != "job.failed" || m.Data.Job.ID != 1 || m.Data.Job.State != muster.JobFailed || m.Data.URL != "https://muster.example/jobs/1" || m.Data.Project != "vision" ||
		m.Timestamp.UnixMilli() != int64(m.Data.Job.FinishedAt) || len(m.Data.Failures) != 1 || m.Data.Failures[0].Reason != "out_of_memory" || m.Data.Job.Spec != nil {
		t.Errorf("body %s", q.body)
	}
	w.waitFor("it is logged", func() bool {
		log := w.deliveryLog(store.DeliveryQuery{Job: 1, State: store.DeliveryDelivered})
		return len(log) == 1 && log[0].Status == http.StatusOK && log[0].Attempts == 1 && log[0].Message == q.Get("Webhook-Id") && log[0].Latency > 0
	})
	w.wantNoRequest(r)

	// A project's own notifications, with the secret that the server made for it.
	if err := w.SetProjectNotify(t.Context(), "speech", []muster.Notify{r.notify("/project")}); err != nil {
		t.Fatal(err)
	}
	w.submit(2, "speech")
	w.submit(3, "vision")
	w.end(3, "vision", muster.Succeeded)
	w.end(2, "speech", muster.Cancelled)
	q = r.next(t)
	secret, err := hooks.Secret("speech")
	if err != nil {
		t.Fatal(err)
	}
	verify(t, q, secret)
	if !strings.Contains(q.body, `"type":"job.cancelled"`) || !strings.Contains(q.body, `"id":2`) {
		t.Errorf("body %s", q.body)
	}
	w.wantNoRequest(r)
}

func TestFailedDeliveriesAreRetried(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	var n atomic.Int64
	r := newReceiver(t, func(rw http.ResponseWriter, _ *http.Request) {
		if n.Add(1) < 2 {
			http.Error(rw, "the database is down", http.StatusInternalServerError)
		}
	})
	w.run()
	w.submit(1, "default", r.notify("/"))
	w.end(1, "default", muster.Succeeded)
	first := r.next(t)
	w.waitFor("the failure is logged", func() bool {
		log := w.deliveryLog(store.DeliveryQuery{State: store.DeliveryPending})
		return len(log) == 1 && log[0].Status == 500 && strings.Contains(log[0].Error, "HTTP 500: the database is down") && log[0].NextAt > log[0].AttemptedAt+3_000
	})
	second := r.next(t)
	if first.Get("Webhook-Id") != second.Get("Webhook-Id") || first.body != second.body || first.Get("Webhook-Timestamp") == second.Get("Webhook-Timestamp") {
		t.Errorf("the second attempt differs:\n%+v\n%+v", first, second)
	}
	w.waitFor("it is delivered", func() bool {
		log := w.deliveryLog(store.DeliveryQuery{State: store.DeliveryDelivered})
		return len(log) == 1 && log[0].Attempts == 2 && log[0].Error == ""
	})
}

// Between the commit that ends a job and its delivery the server is killed: nothing is lost.
func TestDeliveriesSurviveARestart(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	r := newReceiver(t, nil)
	w.submit(1, "default", r.notify("/a"))
	w.end(1, "default", muster.Succeeded) // no Sender runs
	w.restart()
	_, stop := w.run()
	if q := r.next(t); q.path != "/a" {
		t.Errorf("%+v", q)
	}
	w.waitFor("it is logged", func() bool { return len(w.deliveryLog(store.DeliveryQuery{State: store.DeliveryDelivered})) == 1 })

	// And while an attempt is in progress: it is made again, with the same id.
	start, release := make(chan string, 2), make(chan struct{})
	slow := newReceiver(t, func(_ http.ResponseWriter, q *http.Request) {
		start <- q.Header.Get("Webhook-Id")
		select {
		case <-release:
		case <-q.Context().Done():
		}
	})
	w.submit(2, "default", slow.notify("/b"))
	w.end(2, "default", muster.Succeeded)
	first := <-start
	stop()
	w.restart()
	close(release)
	w.run()
	if again := <-start; again != first {
		t.Errorf("sent again as %s, and was %s", again, first)
	}
	w.waitFor("it is delivered", func() bool { return len(w.deliveryLog(store.DeliveryQuery{State: store.DeliveryDelivered})) == 2 })
	w.wantNoRequest(r)
}

// faultyStore is a store in which some jobs, or the tasks of some, cannot be read.
type faultyStore struct {
	webhook.Store

	job, tasks func(muster.JobID) error
}

func (d *faultyStore) Job(ctx context.Context, id muster.JobID) (muster.Job, error) {
	if err := d.job(id); err != nil {
		return muster.Job{}, err
	}
	return d.Store.Job(ctx, id)
}

func (d *faultyStore) Tasks(ctx context.Context, q store.TaskQuery) ([]muster.Task, string, error) {
	if err := d.tasks(q.Job); err != nil {
		return nil, "", err
	}
	return d.Store.Tasks(ctx, q)
}

// A job that cannot be read is logged and blocks no other job.
func TestDamagedJobDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	broken := func(ids ...muster.JobID) func(muster.JobID) error {
		return func(id muster.JobID) error {
			if slices.Contains(ids, id) {
				return muster.Errorf(muster.Internal, "cannot read the database: decode")
			}
			return nil
		}
	}
	w.cfg.Store = &faultyStore{w.Store, broken(1, 2), broken(3)}
	var out bytes.Buffer
	w.cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
	r := newReceiver(t, nil)
	long := r.notify("/long", muster.OnWaitingLong)
	long.After = muster.Duration(time.Second)
	w.submit(1, "default", r.notify("/1"))
	w.submit(2, "default", long)
	w.submit(3, "default", r.notify("/3"))
	w.submit(4, "default", r.notify("/4"))
	for _, n := range []muster.JobID{1, 3, 4} {
		w.end(n, "default", muster.Failed)
	}
	_, stop := w.run()
	got := map[string]string{}
	for range 2 {
		q := r.next(t)
		got[q.path] = q.body
	}
	if !strings.Contains(got["/3"], `"type":"job.failed"`) || strings.Contains(got["/3"], "failures") || !strings.Contains(got["/4"], "failures") {
		t.Errorf("got %v", got)
	}
	w.waitIdle()
	stop()
	for _, line := range []string{`event=job.failed error="cannot read the database: decode" job=1`, `event=job.waiting_long error="cannot read the database: decode" job=2`, `event=job.failed error="cannot read the database: decode" job=3`} {
		if strings.Count(out.String(), line) != 1 {
			t.Errorf("the log does not contain %q exactly once: %s", line, out.String())
		}
	}
}

// A database that cannot be read loses no end.
func TestEndsAreRetriedUntilStored(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	tried := make(chan struct{}, 100)
	w.cfg.Store = &faultyStore{Store: w.Store, job: func(muster.JobID) error {
		tried <- struct{}{}
		return muster.Errorf(muster.Unavailable, "the database is locked")
	}}
	r := newReceiver(t, nil)
	w.submit(1, "default", r.notify("/1"))
	w.end(1, "default", muster.Failed)
	_, stop := w.run()
	for range 2 { // it is tried again
		<-tried
	}
	stop()
	w.cfg.Store = w.Store
	w.run()
	r.next(t)
}

// A hanging receiver delays neither commits nor other receivers.
func TestHangingReceiverDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	w.run()
	release := make(chan struct{})
	var atOnce, limit atomic.Int64
	hanging := newReceiver(t, func(_ http.ResponseWriter, q *http.Request) {
		limit.Store(max(limit.Load(), atOnce.Add(1)))
		defer atOnce.Add(-1)
		select {
		case <-release:
		case <-q.Context().Done():
		}
	})
	defer close(release)
	good := newReceiver(t, nil)
	if err := w.SetProjectNotify(t.Context(), "default", []muster.Notify{hanging.notify("/")}); err != nil {
		t.Fatal(err)
	}
	jobs := 3_000
	if testing.Short() {
		jobs = 300
	}
	for n := 1; n <= jobs; n++ {
		w.submit(id(n), "default")
	}
	var slowest time.Duration
	for n := 1; n <= jobs; n++ {
		start := time.Now()
		w.end(id(n), "default", muster.Succeeded)
		slowest = max(slowest, time.Since(start))
	}
	if slowest > 5*time.Second { // the receiver hangs for 10
		t.Errorf("a commit took %s", slowest)
	}
	t.Logf("the slowest of %d commits took %s", jobs, slowest)
	w.submit(id(jobs+1), "other", good.notify("/"))
	w.end(id(jobs+1), "other", muster.Succeeded)
	if q := good.next(t); !strings.Contains(q.body, fmt.Sprintf(`"id":%d`, jobs+1)) {
		t.Errorf("body %s", q.body)
	}
	w.waitFor("all ends are taken", func() bool {
		ends, err := w.JobEnds(t.Context(), 1)
		return err == nil && len(ends) == 0
	})
	if n := limit.Load(); n < 1 || n > 4 {
		t.Errorf("the hanging host had %d attempts at once, want 1 to 4", n)
	}
}

// A project whose receivers hang, on however many hosts, leaves half of the attempts to others.
func TestProjectLimitLeavesCapacityForOthers(t *testing.T) {
	t.Parallel()
	checkFairness(t, 16, "hangs")
}

// Several of them leave some attempts to a project that has none in progress.
func TestTotalLimitLeavesCapacityForAnotherProject(t *testing.T) {
	t.Parallel()
	checkFairness(t, 24, "hangs", "hangs too")
}

// checkFairness checks that another project's deliveries are sent while projects with hanging receivers use most attempts.
func checkFairness(t *testing.T, limit int64, projects ...string) {
	t.Helper()
	w := newEnv(t)
	w.run()
	release, full := make(chan struct{}), make(chan struct{})
	isFull := sync.OnceFunc(func() { close(full) })
	var atOnce, over atomic.Int64
	var list []muster.Notify
	for range 10 {
		list = append(list, newReceiver(t, func(_ http.ResponseWriter, q *http.Request) {
			n := atOnce.Add(1)
			defer atOnce.Add(-1)
			switch {
			case n == limit:
				isFull()
			case n > limit:
				over.Add(1)
			}
			select {
			case <-release:
			case <-q.Context().Done():
			}
		}).notify("/"))
	}
	defer close(release)
	start := time.Now()
	var n int
	for _, project := range projects {
		for range 4 {
			n++
			w.submit(id(n), project, list...)
			w.end(id(n), project, muster.Succeeded)
		}
	}
	select {
	case <-full:
	case <-time.After(testTimeout):
		t.Fatalf("%d attempts at once", atOnce.Load())
	}
	good := newReceiver(t, nil)
	w.submit(id(n+1), "good", good.notify("/"))
	w.end(id(n+1), "good", muster.Succeeded)
	good.next(t)
	if n := over.Load(); n > 0 && time.Since(start) < 10*time.Second { // later, attempts that timed out may still be counted here
		t.Errorf("the hanging projects had more than %d attempts at once, %d times", limit, n)
	}
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	w.cfg.Allow = nil
	r := newReceiver(t, nil)
	_, port, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://"), ":")
	w.run()
	urls := []string{r.URL, "http://169.254.169.254/latest/meta-data", "http://[::1]:" + port, "http://0.0.0.0:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://10.0.0.1/"}
	for i, u := range urls {
		w.submit(id(i+1), "default", muster.Notify{URL: u})
		w.end(id(i+1), "default", muster.Succeeded)
	}
	w.waitFor("all are given up", func() bool { return len(w.deliveryLog(store.DeliveryQuery{State: store.DeliveryFailed})) == len(urls) })
	for _, d := range w.deliveryLog(store.DeliveryQuery{}) {
		if d.Attempts != 1 || !strings.Contains(d.Error, "no public address") {
			t.Errorf("%s: %d attempts, %q", d.Host, d.Attempts, d.Error)
		}
	}
	w.wantNoRequest(r)
}

// TestNamesAreNotResolvedForCallers checks that the log has the same error for a name with a private address and for an unknown one.
func TestNamesAreNotResolvedForCallers(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	w.cfg.Allow = nil
	r := newReceiver(t, nil)
	_, port, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://"), ":")
	w.run()
	for i, host := range []string{"localhost", "no-such-name.invalid"} {
		w.submit(id(i+1), "default", muster.Notify{URL: "http://" + host + ":" + port + "/secret"})
		w.end(id(i+1), "default", muster.Succeeded)
	}
	w.waitFor("both were tried", func() bool {
		log := w.deliveryLog(store.DeliveryQuery{State: store.DeliveryPending})
		return len(log) == 2 && log[0].Attempts > 0 && log[1].Attempts > 0
	})
	log := w.deliveryLog(store.DeliveryQuery{})
	if log[0].Error != log[1].Error || !strings.Contains(log[0].Error, "no public address") || strings.Contains(log[0].Error, "127.0.0.1") {
		t.Errorf("the log tells them apart: %q, %q", log[0].Error, log[1].Error)
	}
	w.wantNoRequest(r)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	target := newReceiver(t, nil)
	r := newReceiver(t, func(rw http.ResponseWriter, q *http.Request) {
		http.Redirect(rw, q, target.URL, http.StatusTemporaryRedirect)
	})
	w.run()
	w.submit(1, "default", r.notify("/"))
	w.end(1, "default", muster.Succeeded)
	w.waitFor("it failed", func() bool {
		log := w.deliveryLog(store.DeliveryQuery{State: store.DeliveryPending})
		return len(log) == 1 && log[0].Status == 307 && strings.Contains(log[0].Error, "redirects are not followed")
	})
	w.wantNoRequest(target)
}

func TestGoneIsNotRetried(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	r := newReceiver(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusGone) })
	var out bytes.Buffer
	w.cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
	_, stop := w.run()
	w.submit(1, "default", r.notify("/"))
	w.end(1, "default", muster.Succeeded)
	w.waitFor("it is given up", func() bool {
		log := w.deliveryLog(store.DeliveryQuery{State: store.DeliveryFailed})
		return len(log) == 1 && log[0].Status == http.StatusGone && log[0].Attempts == 1
	})
	stop()
	if want := "job=1 trace_id=" + traceparent.TraceText("j1"); !strings.Contains(out.String(), want) {
		t.Errorf("the log does not contain %q: %s", want, out.String())
	}
}

// A delivery that failed for a day is not retried, and its error mentions this.
func TestDeliveriesExpireAfterADay(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	r := newReceiver(t, func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "no", http.StatusBadGateway) })
	old := muster.NewTime(time.Now().Add(-25 * time.Hour))
	if err := w.EnqueueDeliveries(t.Context(), store.EnqueueBatch{Deliveries: []store.Delivery{{
		Message: "msg_1", Project: "default", Job: 0, Event: "test", URL: r.URL, Host: strings.TrimPrefix(r.URL, "http://"), Body: []byte("{}"),
		CreatedAt: old, NextAt: old, Attempts: 20,
	}}}); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.waitFor("it is given up", func() bool {
		log := w.deliveryLog(store.DeliveryQuery{State: store.DeliveryFailed})
		return len(log) == 1 && log[0].Error == "HTTP 502: no ; given up after 21 attempts in 24h"
	})
}

func TestLongWaits(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	r := newReceiver(t, nil)
	soon, late := r.notify("/soon", muster.OnWaitingLong), r.notify("/late", muster.OnWaitingLong, muster.OnSucceeded)
	soon.After, late.After = muster.Duration(time.Second), muster.Duration(time.Hour)
	w.submit(1, "default", soon, late)
	_, stop := w.run()
	q := r.next(t)
	if q.path != "/soon" || !strings.Contains(q.body, `"type":"job.waiting_long"`) || !strings.Contains(q.body, "needs a GPU") {
		t.Errorf("%+v", q)
	}
	w.waitFor("it is delivered", func() bool { return len(w.deliveryLog(store.DeliveryQuery{State: store.DeliveryDelivered})) == 1 })
	stop()
	w.restart()
	if list, err := w.WatchedJobs(t.Context(), 0, 10); err != nil || len(list) != 1 || list[0].Idle.NotifiedWait != soon.After || list[0].Idle.Since != list[0].Job.CreatedAt {
		t.Errorf("after a restart it is known %+v", list)
	}
	w.run()
	w.end(1, "default", muster.Succeeded)
	if q := r.next(t); q.path != "/late" || !strings.Contains(q.body, "job.succeeded") {
		t.Errorf("%+v", q)
	}
	w.waitFor("it is delivered", func() bool { return len(w.deliveryLog(store.DeliveryQuery{State: store.DeliveryDelivered})) == 2 })
	w.wantNoRequest(r)
}

// The wait of a retried job starts at the retry, and is notified again.
func TestRetryRestartsTheWait(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	r := newReceiver(t, nil)
	soon, day := r.notify("/soon", muster.OnWaitingLong), r.notify("/day", muster.OnWaitingLong)
	soon.After, day.After = muster.Duration(time.Second), muster.Duration(24*time.Hour)
	ago := func(d time.Duration) muster.Time { return muster.NewTime(time.Now().Add(-d)) }
	spec := &muster.Spec{Name: "train", Notify: []muster.Notify{soon, day}, Tasks: []muster.TaskSpec{{Name: "stage", Kind: muster.KindNoop}}}
	w.commit(1, "default", muster.Queued, 0, spec, func(j *muster.Job) { j.CreatedAt = ago(26 * time.Hour) })
	w.commit(1, "default", muster.Cancelled, ago(25*time.Hour), nil)
	for n := 1; n <= 2; n++ {
		w.retry(1, "default", ago(time.Minute))
		_, stop := w.run()
		if q := r.next(t); q.path != "/soon" {
			t.Errorf("wait %d: %+v", n, q)
		}
		w.waitFor("it is delivered", func() bool { return len(w.deliveryLog(store.DeliveryQuery{State: store.DeliveryDelivered})) == n })
		stop()
		w.end(1, "default", muster.Cancelled)
	}
	if log := w.deliveryLog(store.DeliveryQuery{}); len(log) != 2 {
		t.Errorf("the log has %+v", log)
	}
}

func TestTestsAreSentOnce(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	hooks, err := webhook.New(t.Context(), w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := newReceiver(t, func(rw http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/bad" {
			http.Error(rw, "unknown topic", http.StatusNotFound)
		}
	})
	sent, err := hooks.SendTest(t.Context(), "default", []muster.Notify{r.notify("/good"), r.notify("/bad")})
	if err != nil || len(sent) != 2 || sent[0].State() != store.DeliveryDelivered || sent[1].State() != store.DeliveryFailed || sent[1].Error != "HTTP 404: unknown topic " {
		t.Fatalf("%+v %v", sent, err)
	}
	if log := w.deliveryLog(store.DeliveryQuery{}); len(log) != 2 {
		t.Errorf("log %+v", log)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	start := func(cfg webhook.Config) *webhook.Sender {
		t.Helper()
		h, err := webhook.New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	a, b := start(w.cfg), start(w.cfg)
	secret := func(h *webhook.Sender, project string) string {
		t.Helper()
		text, err := h.Secret(project)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if secret(a, "x") != secret(b, "x") || secret(a, "x") == secret(a, "y") || !strings.HasPrefix(secret(a, "x"), "whsec_") {
		t.Errorf("secrets %s %s %s", secret(a, "x"), secret(b, "x"), secret(a, "y"))
	}
	configured := w.cfg
	configured.Secret = "given by the operator"
	c := start(configured)
	if secret(c, "x") == secret(a, "x") {
		t.Error("the given secret is not used")
	}
	n := muster.Notify{URL: "https://example.org/", Secret: "a-secret-of-16-bytes"}
	sealed, err := a.Seal([]muster.Notify{n})
	if err != nil || strings.Contains(sealed[0].Secret, "secret") {
		t.Fatal(sealed, err)
	}
	if again, err := c.Seal(sealed); err != nil || !slices.EqualFunc(again, sealed, func(x, y muster.Notify) bool { return x.Secret == y.Secret }) {
		t.Errorf("sealed again: %+v %v", again, err)
	}
	other := newEnv(t)
	if _, err := start(other.cfg).Seal(sealed); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("another server opens it: %v", err)
	}
	if err := os.WriteFile(w.cfg.KeyFile, []byte("00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := webhook.New(t.Context(), w.cfg); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), w.cfg.KeyFile) {
		t.Errorf("a damaged key: %v", err)
	}
	if err := os.Remove(w.cfg.KeyFile); err != nil {
		t.Fatal(err)
	}
	if d := start(w.cfg); secret(d, "x") == secret(a, "x") {
		t.Error("a new key is the old one")
	}
	if info, err := os.Stat(w.cfg.KeyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v %v", info.Mode(), err)
	}
}

// TestURLsAreEncrypted checks that only scheme, host and port of a URL are plain, and that the rest is bound to this host.
func TestURLsAreEncrypted(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	h, err := webhook.New(t.Context(), w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for url, origin := range map[string]string{
		"https://hooks.slack.com/services/T0/B0/s3cr3t":            "https://hooks.slack.com",
		"https://user:s3cr3t@discord.example:8443?token=s3cr3t":    "https://discord.example:8443",
		"http://[2606:4700::1111]:80/s3cr3t@x/y?u=http://z/s3cr3t": "http://[2606:4700::1111]:80",
		"https://example.org": "https://example.org",
	} {
		list := []muster.Notify{{URL: url, Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}
		sealed, err := h.Seal(list)
		if err != nil {
			t.Fatal(err)
		}
		got := sealed[0].URL
		if strings.Contains(got, "s3cr3t") || !strings.HasPrefix(got, origin+"/#sealed:") || muster.MaskURL(got) != origin+"/…" || muster.MaskURL(url) != origin+"/…" {
			t.Errorf("%s is sealed as %s and masked as %s", url, got, muster.MaskURL(got))
		}
		if again, err := h.Seal(sealed); err != nil || !slices.EqualFunc(again, sealed, func(a, b muster.Notify) bool { return a.URL == b.URL && a.Secret == b.Secret }) {
			t.Errorf("sealed again: %+v, %v", again, err)
		}
		if twin, err := h.Seal(list); err != nil || twin[0].URL != got {
			t.Errorf("the same URL is sealed in another way: %+v, %v", twin, err)
		}
		if open, err := h.Unseal(sealed); err != nil || open[0].URL != url || list[0].URL != url {
			t.Errorf("opened: %+v, %v", open, err)
		}
		moved := []muster.Notify{{URL: strings.Replace(got, origin, "https://evil.example", 1)}}
		if _, err := h.Seal(moved); muster.CodeOf(err) != muster.Invalid || strings.Contains(err.Error(), "#sealed") {
			t.Errorf("a sealed URL with another host: %v", err)
		}
	}
}

// TestTheDatabaseHasNoSecrets checks that the database has neither URLs of receivers nor signing secrets.
func TestTheDatabaseHasNoSecrets(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	r := newReceiver(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusServiceUnavailable) })
	hooks, stop := w.run()
	sealed, err := hooks.Seal([]muster.Notify{{URL: r.URL + "/p4th-s3cr3t?q=s3cr3t", Secret: "the-s3cr3t-that-signs"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.SetProjectNotify(t.Context(), "default", sealed); err != nil {
		t.Fatal(err)
	}
	w.submit(1, "default", sealed...)
	w.submit(2, "default", r.notify("/old-s3cr3t")) // as an older server wrote it: only its own spec has it
	w.end(1, "default", muster.Failed)
	w.end(2, "default", muster.Failed)
	for range 4 {
		q := r.next(t)
		if !strings.Contains(q.path, "s3cr3t") {
			t.Errorf("a request to %s", q.path)
		}
		if strings.HasPrefix(q.path, "/p4th") {
			verify(t, q, "the-s3cr3t-that-signs")
		}
	}
	if _, err := hooks.SendTest(t.Context(), "default", []muster.Notify{{URL: r.URL + "/test-s3cr3t"}}); err != nil {
		t.Fatal(err)
	}
	w.waitFor("all are written", func() bool { return len(w.deliveryLog(store.DeliveryQuery{})) == 5 })
	stop()
	due, _, err := w.Due(t.Context(), muster.NewTime(time.Now().Add(time.Hour)), 10, nil)
	if err != nil || len(due) != 4 {
		t.Fatalf("%d due, %v", len(due), err)
	}
	for _, d := range due {
		if text := fmt.Sprintf("%+v", d); strings.Contains(text, "s3cr3t") {
			t.Errorf("a delivery is kept as %s", text)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(w.path + suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		key, err := os.ReadFile(w.cfg.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"p4th-s3cr3t", "q=s3cr3t", "the-s3cr3t-that-signs", "test-s3cr3t", strings.TrimSpace(string(key))} {
			if bytes.Contains(data, []byte(text)) {
				t.Errorf("the database%s has %s", suffix, text)
			}
		}
	}
}

// A proxy is used where every address is allowed and nowhere else, because it could reach any.
func TestAllowAnyReachesLoopback(t *testing.T) {
	t.Parallel()
	w := newEnv(t)
	w.cfg.Allow = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	hooks, err := webhook.New(t.Context(), w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := newReceiver(t, nil)
	if sent, err := hooks.SendTest(context.Background(), "default", []muster.Notify{r.notify("/")}); err != nil || sent[0].State() != store.DeliveryDelivered {
		t.Errorf("%+v %v", sent, err)
	}
}
