//go:build unix

package attack

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/polllink"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
)

// promptLimit is the time in which streams must end on a machine that may pause for seconds. It is shorter than all limits by which streams
// and uploads end anyway.
const promptLimit = 12 * time.Second

// attempt lets a played worker start an attempt that does not end.
func (e *env) attempt() muster.AttemptID {
	e.t.Helper()
	_, conn := e.connect("rig")
	if _, err := e.Client.Submit(e.t.Context(), &muster.Spec{Name: "endless", Tasks: []muster.TaskSpec{{Kind: muster.KindNoop}}}, client.SubmitOptions{}); err != nil {
		e.t.Fatal(err)
	}
	id := e.receive(conn, "an assignment", func(f *link.ToWorker) bool { return len(f.Assign) > 0 }).Assign[0].Attempt
	e.send(conn, &link.ToServer{Started: []link.Started{{Attempt: id, At: muster.NewTime(time.Now())}}})
	e.AwaitRunning(id.Task.Job, 1)
	return id
}

// TestStreamsEndWhenTheirKeyIsRevoked opens each stream of the API with a key that is revoked, and with one
// that expires: none continues after that.
func TestStreamsEndWhenTheirKeyIsRevoked(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	task := e.attempt().Task.String()
	for _, path := range []string{"/api/v1/events", "/api/v1/tasks/" + task + "/logs?follow=true", "/api/v1/tasks/" + task + "/usage?follow=true"} {
		for _, how := range []string{"revoked", "expired"} {
			t.Run(how+path, func(t *testing.T) {
				t.Parallel()
				e := newEnvFor(t, e.Cluster)
				var ttl time.Duration
				if how == "expired" {
					ttl = 3 * time.Second
				}
				k := e.key(string(auth.Viewer), "", ttl)
				ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout) // the first line must come, too
				defer cancel()
				resp, err := e.http.Do(e.request(http.MethodGet, path, k.Secret, nil).WithContext(ctx))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				lines := bufio.NewReader(resp.Body)
				if first, err := lines.ReadString('\n'); err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%d %q, %v", resp.StatusCode, first, err)
				}
				if how == "revoked" {
					e.revoke(k.Key.ID)
				}
				ended := make(chan struct{})
				go func() {
					_, _ = io.Copy(io.Discard, lines)
					close(ended)
				}()
				select {
				case <-ended:
					if ctx.Err() != nil {
						t.Errorf("the stream of a key that was %s took longer than %s to begin and end", how, awaitTimeout)
					}
				case <-time.After(promptLimit):
					t.Errorf("the stream of a key that was %s continued for %s", how, promptLimit)
				}
			})
		}
	}
}

// TestUploadsEndWhenTheirKeyIsRevoked revokes a key in the middle of its upload: the rest of it is not taken.
func TestUploadsEndWhenTheirKeyIsRevoked(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	k := e.key(string(auth.Submitter), "", 0)
	content := strings.Repeat("0123456789", 20_000)
	sum := sha256.Sum256([]byte(content))
	path := "/api/v1/blobs/" + hex.EncodeToString(sum[:])
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", e.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	half := len(content) / 2
	if _, err := fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: muster\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", path, k.Secret, len(content), content[:half]); err != nil {
		t.Fatal(err)
	}
	head := func() (*http.Response, error) {
		resp, err := e.http.Do(e.request(http.MethodHead, path, k.Secret, nil))
		if err == nil {
			_ = resp.Body.Close()
		}
		return resp, err
	}
	e.Await("half of the upload is there", awaitTimeout, func() error {
		resp, err := head()
		if err == nil && resp.Header.Get("Upload-Offset") != strconv.Itoa(half) {
			err = fmt.Errorf("the offset is %q", resp.Header.Get("Upload-Offset"))
		}
		return err
	})
	e.revoke(k.Key.ID)
	if err := conn.SetReadDeadline(time.Now().Add(promptLimit)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the upload of a revoked key was open for %s: %q, %v", promptLimit, b, err)
	}
}

// TestSessionsEndWhenTheirKeyIsRevoked revokes keys of workers before their hello, and while they are
// connected, over both transports.
func TestSessionsEndWhenTheirKeyIsRevoked(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for name, dial := range map[string]func(*env, testworker.Worker) link.Dialer{
		"websocket": func(e *env, w testworker.Worker) link.Dialer {
			return &wslink.Dialer{Server: e.url(""), Credentials: w, HTTP: e.http}
		},
		"poll": func(e *env, w testworker.Worker) link.Dialer {
			return &polllink.Dialer{Server: e.url(""), Credentials: w, HTTP: e.http}
		},
	} {
		for _, phase := range []string{"before hello", "after welcome"} {
			t.Run(name+" "+phase, func(t *testing.T) {
				t.Parallel()
				e := newEnvFor(t, e.Cluster)
				worker := e.join("rig-" + name[:2] + phase[:3])
				conn, err := dial(e, worker).Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if phase == "after welcome" {
					e.send(conn, &link.ToServer{Hello: hello(worker, "rig")})
					e.receive(conn, "a welcome", func(f *link.ToWorker) bool { return f.Welcome != nil })
				}
				type word struct {
					f   *link.ToWorker
					err error
				}
				ctx, cancel := context.WithTimeout(t.Context(), promptLimit)
				defer cancel()
				words := make(chan word, 1)
				listen := func() {
					f, err := conn.Recv(ctx)
					words <- word{f, err}
				}
				if phase == "after welcome" {
					go listen() // the poll is under way
				}
				keys, err := e.Client.Keys(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range keys {
					if k.Worker == worker.Worker {
						e.revoke(k.ID)
					}
				}
				if phase == "before hello" {
					_ = conn.Send(ctx, &link.ToServer{Hello: hello(worker, "rig")}) // it may be closed already
					go listen()
				}
				w := <-words
				switch {
				case ctx.Err() != nil:
					t.Errorf("the session of a revoked key was open for %s", promptLimit)
				case w.err == nil && (w.f.Goodbye == nil || w.f.Goodbye.Code != muster.Forbidden):
					t.Errorf("a worker whose key was revoked was sent %+v", w.f)
				case phase == "after welcome" && w.err != nil && muster.CodeOf(w.err) != muster.Forbidden:
					t.Errorf("the session ended for another reason: %v", w.err)
				}
			})
		}
	}
}

// TestGatewaySessionsEndWhenTheirKeyIsRevoked revokes the join key of a worker of DTF that is connected to the gateway: its connection ends, and
// its token opens no other one.
func TestGatewaySessionsEndWhenTheirKeyIsRevoked(t *testing.T) {
	t.Parallel()
	gateway := mustertest.ReservePort(t)
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--dialect", "dtf=" + gateway + ",key=required"}}))
	k := e.key(string(auth.Join), "", 0)
	open := func(text string) (*websocket.Conn, string) {
		t.Helper()
		ws, resp, err := websocket.Dial(t.Context(), "ws://"+gateway+"/ws", nil)
		if err != nil {
			t.Fatal(err, resp)
		}
		t.Cleanup(func() { _ = ws.CloseNow() })
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		_, answer, err := ws.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return ws, string(answer)
	}
	ws, answer := open(fmt.Sprintf(`{"type":"auth","auth_type":"api_key","api_key":%q,"worker_id":"rig"}`, k.Secret))
	var granted struct {
		Status string `json:"status"`
		Token  string `json:"token"`
	}
	if err := json.Unmarshal([]byte(answer), &granted); err != nil || granted.Status != "success" || granted.Token == "" {
		t.Fatalf("the worker is answered %s, %v", answer, err)
	}
	e.revoke(k.Key.ID)
	ctx, cancel := context.WithTimeout(t.Context(), 2*promptLimit)
	defer cancel()
	if _, text, err := ws.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the connection of a revoked key was open for %s: %s", 2*promptLimit, text)
	}
	if _, answer := open(fmt.Sprintf(`{"type":"auth","auth_type":"token","token":%q}`, granted.Token)); strings.Contains(answer, "success") {
		t.Errorf("the token of a revoked key is answered %s", answer)
	}
}
