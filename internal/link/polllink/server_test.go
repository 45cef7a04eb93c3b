package polllink_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/polllink"
)

const session = "0123456789abcdef"

// env is a server and its requests, in virtual time.
type env struct {
	t     *testing.T
	srv   *polllink.Server
	conns chan link.ServerConn
}

func newEnv(t *testing.T) *env {
	t.Helper()
	w := &env{t: t, conns: make(chan link.ServerConn, 10)}
	w.srv = polllink.NewServer(
		func(r *http.Request) (link.Peer, error) {
			return link.Peer{Worker: muster.WorkerID(r.Header.Get("Worker"))}, nil
		},
		func(ctx context.Context, c link.ServerConn, _ link.Peer) { w.conns <- c; <-ctx.Done() })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.srv.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return w
}

// post makes one request as worker w1 and returns "status body", or "status detail" for an error.
func (w *env) post(query, body string) string { return w.postAs("w1", query, body) }

func (w *env) postAs(worker, query, body string) string {
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, link.PathPoll+"?"+query, strings.NewReader(body))
	r.Header.Set("Worker", worker)
	rec := httptest.NewRecorder()
	w.srv.ServeHTTP(rec, r)
	text := rec.Body.String()
	var problem struct {
		Detail string `json:"detail"`
	}
	if rec.Code != http.StatusOK && json.Unmarshal(rec.Body.Bytes(), &problem) == nil {
		text = problem.Detail
	}
	return strings.TrimSpace(http.StatusText(rec.Code) + " " + text)
}

func (w *env) want(query, body, prefix string) {
	w.t.Helper()
	if got := w.post(query, body); !strings.HasPrefix(got, prefix) {
		w.t.Errorf("%s %s\n got: %s\nwant: %s", query, body, got, prefix)
	}
}

func (w *env) open() link.ServerConn {
	w.t.Helper()
	w.want("op=open&session="+session, "", "OK")
	return <-w.conns
}

const hello = `{"seq":1,"hello":{"version":2,"worker":"w1","name":"","build":"","kinds":[],"resources":{"cpus":1,"memory":1,"disk":1,"slots":1}}}`

func TestRequestsMayBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		c := w.open()
		w.want("op=open&session="+session, "", "OK")
		if len(w.conns) != 0 {
			t.Error("a repeated open made a second session")
		}
		w.want("op=send&seq=1&session="+session, hello, "OK")
		w.want("op=send&seq=1&session="+session, hello, "OK")
		if f, err := c.Recv(t.Context()); err != nil || f.Hello == nil {
			t.Fatal(err)
		}
		w.want("op=send&seq=1&session="+session, hello, "OK")
		w.want("op=send&seq=2&session="+session, `{"seq":2,"ping":true}`, "OK")
		if f, err := c.Recv(t.Context()); err != nil || !f.Ping {
			t.Errorf("a repeated frame came twice: %+v, %v", f, err)
		}
		for _, f := range []*link.ToWorker{{Welcome: &link.Welcome{Heartbeat: 1e9}}, {Pong: true}} {
			if err := c.Send(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		both := "OK {\"seq\":1,\"welcome\":{\"heartbeat\":1}}\n{\"seq\":2,\"pong\":true}"
		w.want("op=recv&after=0&session="+session, "", both)
		w.want("op=recv&after=0&session="+session, "", both)
		w.want("op=recv&after=1&session="+session, "", `OK {"seq":2,"pong":true}`)
		w.want("op=recv&after=0&session="+session, "", "Bad Request after is 0, but the session has frames 2 to 2")
	})
}

func TestARecvWaitsTwentySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		w.open()
		start := time.Now()
		w.want("op=recv&after=0&session="+session, "", "OK")
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("an empty answer came after %s", took)
		}
	})
}

func TestTheNewestRequestOfASortWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		c := w.open()
		older := make(chan string)
		go func() { older <- w.post("op=recv&after=0&session="+session, "") }()
		synctest.Wait()
		newer := make(chan string)
		go func() { newer <- w.post("op=recv&after=0&session="+session, "") }()
		if got := <-older; !strings.HasPrefix(got, "Conflict") {
			t.Errorf("the older request: %s", got)
		}
		if err := c.Send(t.Context(), &link.ToWorker{Welcome: &link.Welcome{Heartbeat: 1e9}}); err != nil {
			t.Fatal(err)
		}
		if got := <-newer; !strings.HasPrefix(got, "OK {") {
			t.Errorf("the newer request: %s", got)
		}
	})
}

func TestASessionEndsAfterAMinuteOfSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		c := w.open()
		time.Sleep(59 * time.Second)
		w.want("op=send&seq=1&session="+session, hello, "OK")
		if _, err := c.Recv(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := c.Recv(t.Context()); err == nil || time.Since(start) != 60*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		w.want("op=recv&after=0&session="+session, "", "Gone")
	})
}

func TestWhatIsNoPollIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		w.open()
		w.want("op=recv&after=0&session=fedcba9876543210", "", "Gone")
		w.want("op=open&session=short", "", "Bad Request session")
		w.want("op=dance&session="+session, "", "Bad Request op")
		w.want("op=send&seq=x&session="+session, "", "Bad Request seq")
		w.want("op=send&seq=7&session="+session, "", "Bad Request seq is 7, want 1")
		w.want("op=recv&after=5&session="+session, "", "Bad Request after")
		w.want("op=send&seq=1&session="+session, strings.Repeat("x", link.MaxSealed+1), "Request Entity Too Large")
		if got := w.postAs("w2", "op=recv&after=0&session="+session, ""); !strings.HasPrefix(got, "Gone") {
			t.Errorf("another worker's session answers %s", got)
		}
	})
}

func TestAWorkerHasAtMostFourSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		first := w.open()
		for _, c := range "abcd" {
			time.Sleep(time.Second)
			w.want("op=open&session=000000000000000"+string(c), "", "OK")
		}
		start := time.Now()
		if _, err := first.Recv(t.Context()); err == nil || time.Since(start) > 0 {
			t.Errorf("the oldest of five sessions ended after %s: %v", time.Since(start), err)
		}
		w.want("op=recv&after=0&session="+session, "", "Gone")
		w.want("op=recv&after=0&session=000000000000000a", "", "OK")
	})
}

func TestAGoodbyeCanStillBeCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t)
		c := w.open()
		if err := c.Send(t.Context(), &link.ToWorker{Goodbye: &link.Goodbye{Code: muster.Conflict}}); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if err := c.Send(t.Context(), &link.ToWorker{Pong: true}); err == nil {
			t.Error("a closed session sends")
		}
		w.want("op=recv&after=0&session="+session, "", `OK {"seq":1,"goodbye"`)
		w.want("op=recv&after=1&session="+session, "", "Gone")
	})
}

func TestNoSessionsBeforeOrAfterRun(t *testing.T) {
	s := polllink.NewServer(func(*http.Request) (link.Peer, error) { return link.Peer{Worker: "w1"}, nil }, nil)
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, link.PathPoll+"?op=open&session="+session, nil))
	if rec.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", rec.Code)
	}
}
