package execrelay

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/execwire"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/testkit"
)

// env is a relay with its HTTP server, and the workers that it asks to connect.
type env struct {
	relay *Relay
	url   string
	asked chan link.Exec
	log   *lockedBuffer
	stop  func()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (e *env) OpenExec(_ muster.WorkerID, x link.Exec) error {
	e.asked <- x
	return nil
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{asked: make(chan link.Exec, 100), log: &lockedBuffer{}}
	e.relay = New(e, slog.New(slog.NewTextHandler(e.log, nil)))
	workers := wslink.NewFrameServer(func(r *http.Request) (link.Peer, error) {
		return link.Peer{Worker: muster.WorkerID(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))}, nil
	}, e.relay.Accept)
	mux := http.NewServeMux()
	mux.Handle(link.PathExec, workers)
	mux.HandleFunc("/exec", func(w http.ResponseWriter, r *http.Request) {
		target := execwire.Target{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 17, Num: 3}, N: 1}, Worker: "w1", WorkerName: "box", KeyID: "k1", KeyName: "alice", Address: "10.0.0.7"}
		if err := e.relay.Serve(w, r, target); err != nil {
			link.WriteError(w, err)
		}
	})
	s := httptest.NewServer(mux)
	e.url = s.URL
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{e.relay.Run, workers.Run} {
		wg.Go(func() { _ = run(ctx) })
	}
	e.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(func() {
		e.stop()
		s.Close()
	})
	return e
}

// client connects as a client and sends a start.
func (e *env) client(t *testing.T, argv ...string) link.FrameConn {
	t.Helper()
	var conn link.FrameConn
	testkit.AwaitNil(t, "the relay to run", 10*time.Second, func() (err error) {
		conn, err = wslink.DialClient(t.Context(), e.url+"/exec", nil, http.DefaultClient, execwire.Subprotocol, execwire.MaxFrame, link.ResponseError)
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	send(t, conn, &execwire.Frame{Start: &execwire.Start{Command: &execwire.Command{Argv: argv, Env: []string{"TOKEN=hidden"}}}})
	return conn
}

// worker connects as a worker.
func (e *env) worker(t *testing.T, worker, id string) link.FrameConn {
	t.Helper()
	conn, err := (&wslink.Dialer{Server: e.url, Credentials: link.StaticToken(worker)}).DialExec(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func send(t *testing.T, conn link.FrameConn, f *execwire.Frame) {
	t.Helper()
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(t.Context(), b, f.Exit != nil); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, conn link.FrameConn) *execwire.Frame {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	b, err := conn.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var f execwire.Frame
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	return &f
}

func TestRelay(t *testing.T) {
	e := newEnv(t)
	client := e.client(t, "cat", "-n")
	worker := e.worker(t, "w1", (<-e.asked).ID)
	if f := receive(t, worker); f.Start == nil || f.Start.Requester != "alice" || f.Start.Command.Argv[0] != "cat" {
		t.Fatalf("the worker received %+v", f)
	}
	send(t, client, &execwire.Frame{Stream: execwire.Stdin, Data: []byte(`"exit"`)})
	if f := receive(t, worker); string(f.Data) != `"exit"` {
		t.Errorf("the worker received %+v", f)
	}
	send(t, worker, &execwire.Frame{Stream: execwire.Stdout, Data: []byte(`{"exit":{}}`)})
	if f := receive(t, client); string(f.Data) != `{"exit":{}}` {
		t.Errorf("the client received %+v", f)
	}
	send(t, worker, &execwire.Frame{Exit: &execwire.Exit{Code: 9}})
	if f := receive(t, client); f.Exit == nil || f.Exit.Code != 9 {
		t.Errorf("the client received %+v", f)
	}
	_ = client.Close()
	testkit.Await(t, "the lines of the log", func() bool { return strings.Contains(e.log.String(), "exec ended") })
	for _, want := range []string{`msg="exec started" key=alice key_id=k1 address=10.0.0.7 attempt=17.3#1 worker=box command="cat -n"`, `{\"exit\":{\"code\":9}}`} {
		if !strings.Contains(e.log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, e.log)
		}
	}
	if strings.Contains(e.log.String(), "hidden") {
		t.Error("the log has a value of the environment")
	}
}

// A worker cannot take the connection of another one, and no id works twice.
func TestAnotherWorkersID(t *testing.T) {
	e := newEnv(t)
	client := e.client(t, "cat")
	id := (<-e.asked).ID
	if f := receive(t, e.worker(t, "w2", id)); f.Error == nil || f.Error.Code != muster.NotFound {
		t.Errorf("another worker received %+v", f)
	}
	worker := e.worker(t, "w1", id)
	if f := receive(t, worker); f.Start == nil {
		t.Errorf("the worker received %+v", f)
	}
	if f := receive(t, e.worker(t, "w1", id)); f.Error == nil {
		t.Errorf("the second connection received %+v", f)
	}
	_ = worker.Close()
	if f := receive(t, client); f.Error == nil || !strings.Contains(f.Error.Message, "connection to worker box was lost") {
		t.Errorf("the client received %+v", f)
	}
}

func TestClientLeaves(t *testing.T) {
	e := newEnv(t)
	client := e.client(t, "cat")
	worker := e.worker(t, "w1", (<-e.asked).ID)
	receive(t, worker)
	_ = client.Close()
	if _, err := worker.Read(t.Context()); err == nil {
		t.Error("the connection of the worker stays open")
	}
	testkit.Await(t, "the end in the log", func() bool { return strings.Contains(e.log.String(), `result="the client left"`) })
}

func TestServerStops(t *testing.T) {
	e := newEnv(t)
	client := e.client(t, "cat")
	receive(t, e.worker(t, "w1", (<-e.asked).ID))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		e.stop()
	}()
	if f := receive(t, client); f.Error == nil || f.Error.Code != muster.Unavailable {
		t.Errorf("the client received %+v", f)
	}
	_ = client.Close()
	<-stopped
}

func TestBadStart(t *testing.T) {
	e := newEnv(t)
	if f := receive(t, e.client(t)); f.Error == nil || f.Error.Code != muster.Invalid {
		t.Errorf("the client received %+v", f)
	}
	if len(e.asked) > 0 {
		t.Error("the worker was asked to connect")
	}
}

func TestMaximumOfAWorker(t *testing.T) {
	e := newEnv(t)
	for range MaxPerWorker {
		e.client(t, "cat")
		<-e.asked
	}
	_, err := wslink.DialClient(t.Context(), e.url+"/exec", nil, http.DefaultClient, execwire.Subprotocol, execwire.MaxFrame, link.ResponseError)
	if muster.CodeOf(err) != muster.Unavailable || !strings.Contains(err.Error(), "maximum of 16 commands") {
		t.Errorf("got %v", err)
	}
}
