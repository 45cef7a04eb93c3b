//go:build unix

package attack

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
)

// hostileServer speaks the link to one real worker, and answers all else by hand.
type hostileServer struct {
	*httptest.Server

	t     *testing.T
	conns chan link.ServerConn
}

func newHostileServer(t *testing.T, other http.HandlerFunc) *hostileServer {
	t.Helper()
	s := &hostileServer{t: t, conns: make(chan link.ServerConn, 1)}
	mux := http.NewServeMux()
	secret := testworker.Serve(mux, "w-victim", "the-worker's-key")
	identify := func(*http.Request) (link.Peer, error) { return link.Peer{Worker: "w-victim", Secret: secret()}, nil }
	sessions := wslink.NewServer(identify, func(ctx context.Context, conn link.ServerConn, _ link.Peer) {
		select {
		case s.conns <- conn:
			<-ctx.Done()
		case <-ctx.Done():
		}
	})
	mux.Handle(link.PathSocket, sessions)
	mux.HandleFunc("/", other)
	s.Server = httptest.NewServer(mux)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = sessions.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
		s.Close()
	})
	return s
}

// startWorker starts a worker of the server, and returns its session after its hello.
func (s *hostileServer) startWorker(flags ...string) link.ServerConn {
	s.t.Helper()
	cmd := exec.Command(mustertest.Program(s.t), append([]string{"worker", "--server", s.URL, "--name", "victim", "--data", s.t.TempDir()}, flags...)...)
	cmd.Env = append(os.Environ(), "MUSTER_JOIN_TOKEN="+mustertest.JoinToken, "MUSTER_CONFIG="+s.t.TempDir()+"/context.json")
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	select {
	case conn := <-s.conns:
		s.receive(conn, "a hello", func(f *link.ToServer) bool { return f.Hello != nil })
		s.send(conn, &link.ToWorker{Welcome: &link.Welcome{Heartbeat: muster.Duration(10 * time.Second)}})
		s.receive(conn, "that it takes tasks", func(f *link.ToServer) bool { return f.Ready != nil && f.Ready.Constrained == "" })
		return conn
	case <-time.After(awaitTimeout):
		s.t.Fatal("the worker does not connect")
		return nil
	}
}

func (s *hostileServer) send(conn link.ServerConn, f *link.ToWorker) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), awaitTimeout)
	defer cancel()
	if err := conn.Send(ctx, f); err != nil {
		s.t.Fatal(err)
	}
}

func (s *hostileServer) receive(conn link.ServerConn, desc string, match func(*link.ToServer) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), awaitTimeout)
	defer cancel()
	for {
		f, err := conn.Recv(ctx)
		if err != nil {
			s.t.Fatalf("waiting for %s: %v", desc, err)
		}
		if match(f) {
			return
		}
	}
}

// TestWorkersDoNotFollowRedirects assigns a task whose files the server redirects to another address: the worker sends neither a request nor
// its key to it.
func TestWorkersDoNotFollowRedirects(t *testing.T) {
	t.Parallel()
	led := make(chan string, 100)
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		led <- r.Method + " " + r.URL.Path + " with the key " + r.Header.Get("Authorization")
		w.WriteHeader(http.StatusNotFound)
	}))
	defer inside.Close()
	s := newHostileServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside.URL+"/metadata", http.StatusTemporaryRedirect)
	})
	conn := s.startWorker()
	attempt := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
	s.send(conn, &link.ToWorker{
		Specs: []link.GroupSpec{{Ref: 1, UID: "u", Name: "t", Spec: muster.TaskSpec{
			Kind: muster.KindProcess, Run: &muster.Command{Shell: "true"}, Files: "sha256:" + strings.Repeat("0", 64)}}},
		Assign: []link.Assign{{Attempt: attempt, Ref: 1, Grant: muster.Grant{Slots: 1}}},
	})
	s.receive(conn, "a report", func(f *link.ToServer) bool { return len(f.Finished) > 0 })
	select {
	case request := <-led:
		t.Errorf("the worker connected to another address: %s", request)
	default:
	}
}

// TestWorkersOfOtherSystemsDoNotFollowRedirects starts workers of foreign servers which redirect them to another address: they send it neither a
// request nor their key.
func TestWorkersOfOtherSystemsDoNotFollowRedirects(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("the-worker's-key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for system, flags := range map[string][]string{
		"qubix":      {"--backend", "URL"},
		"trainforge": {"--scheduler", "URL"},
		"dtf":        {"--coordinator", "URL", "--api-key-file", key},
	} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			led, asked := make(chan string, 100), make(chan struct{}, 100)
			inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				led <- r.Method + " " + r.URL.Path
				w.WriteHeader(http.StatusNotFound)
			}))
			defer inside.Close()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				http.Redirect(w, r, inside.URL+"/metadata", http.StatusTemporaryRedirect)
			}))
			defer server.Close()
			args := []string{"worker", system}
			for _, flag := range flags {
				args = append(args, strings.Replace(flag, "URL", server.URL, 1))
			}
			cmd := exec.Command(mustertest.Program(t), args...)
			cmd.Env = append(os.Environ(), "MUSTER_DATA="+t.TempDir(), "MUSTER_CONFIG="+t.TempDir()+"/context.json", "MUSTER_ENGINE=none")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			for range 2 { // it has the answer to the first request when it sends the second one
				select {
				case <-asked:
				case request := <-led:
					t.Fatalf("the worker was led to another address: %s", request)
				case <-time.After(awaitTimeout):
					t.Fatal("the worker sends no request")
				}
			}
			select {
			case request := <-led:
				t.Errorf("the worker was led to another address: %s", request)
			default:
			}
		})
	}
}

// TestWorkerRejectsMoreThanItOffers assigns many tasks at once to a worker of four slots, with grants of nothing.
func TestWorkerRejectsMoreThanItOffers(t *testing.T) {
	t.Parallel()
	const slots, tasks = 4, 100
	s := newHostileServer(t, http.NotFound)
	conn := s.startWorker("--slots", "4")
	f := &link.ToWorker{Specs: []link.GroupSpec{{Ref: 1, UID: "u", Name: "t", Spec: muster.TaskSpec{Kind: muster.KindProcess, Run: &muster.Command{Shell: "sleep 600"}}}}}
	for n := range tasks {
		f.Assign = append(f.Assign, link.Assign{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1, Num: n}, N: 1}, Ref: 1})
	}
	s.send(conn, f)
	accepted, rejected := map[muster.AttemptID]bool{}, 0
	s.receive(conn, "an answer to each assignment", func(f *link.ToServer) bool {
		for _, id := range f.Accepted {
			accepted[id] = true
		}
		for _, st := range f.Started {
			accepted[st.Attempt] = true
		}
		for _, r := range f.Finished {
			accepted[r.Attempt] = true
		}
		rejected += len(f.Rejected)
		return len(accepted)+rejected >= tasks
	})
	if len(accepted) > slots {
		t.Errorf("a worker with %d slots ran %d concurrent tasks", slots, len(accepted))
	}
	cancel := &link.ToWorker{}
	for id := range accepted {
		cancel.Cancel = append(cancel.Cancel, link.Cancel{Attempt: id, Drop: true})
	}
	s.send(conn, cancel)
	s.receive(conn, "the end of all tasks", func(f *link.ToServer) bool { return f.Renew != nil && len(f.Renew.Held) == 0 })
}
