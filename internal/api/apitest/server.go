// Package apitest runs the real API in a test: HTTP on a loopback port, the
// real engine, and real stores in a temporary folder. Only workers are simulated, by
// Worker, which sends messages of package link to the engine.
package apitest

import (
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/api/sessiontoken"
	"github.com/muster-dev/muster/internal/auditlog"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/catalog"
	"github.com/muster-dev/muster/internal/cidcheck"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dashboard"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/execrelay"
	"github.com/muster-dev/muster/internal/history"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/oidc"
	"github.com/muster-dev/muster/internal/overview"
	"github.com/muster-dev/muster/internal/retention"
	"github.com/muster-dev/muster/internal/schedules"
	"github.com/muster-dev/muster/internal/secrets"
	"github.com/muster-dev/muster/internal/spec"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/sweeper"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/webhook"
)

// AdminToken is the token of the key "root".
const AdminToken = "test-admin-token"

// Server is one server. After Stop, Start starts it again at the same address with the
// same data.
type Server struct {
	URL     string
	Engine  *engine.Engine
	Exec    *execrelay.Relay
	History *history.History // not running
	Store   *sqlite.Store
	Secrets *secrets.Keeper
	Logs    *tasklog.Dir
	Blobs   *blob.Dir

	dir        string
	epoch      int
	requests   requestLog
	middleware func(http.Handler) http.Handler
	stop       func()
	signIn     *oidc.Provider // nil for none
}

// BlobsDir returns the folder of the files of blobs.
func (s *Server) BlobsDir() string { return filepath.Join(s.dir, "blobs") }

// PutBlob creates a blob that workers w1 and w2 have uploaded.
func (s *Server) PutBlob(ctx context.Context, sha256, text string) error {
	if err := s.Blobs.Put(ctx, sha256, 0, strings.NewReader(text)); err != nil {
		return err
	}
	b := store.Blob{SHA256: sha256, Size: int64(len(text))}
	return s.Store.GrantBlobs(ctx, []store.Grantee{store.WorkerGrantee("w1"), store.WorkerGrantee("w2")}, []store.Blob{b, b})
}

// Start runs a server until the test ends. middleware, if not nil, wraps all handlers.
func Start(tb testing.TB, middleware func(http.Handler) http.Handler) *Server {
	tb.Helper()
	s := &Server{dir: tb.TempDir(), URL: "http://127.0.0.1:0", middleware: middleware}
	s.Start(tb)
	tb.Cleanup(s.Stop)
	return s
}

// PublicURL is the public URL of servers with sign-in.
const PublicURL = "http://localhost:8700"

// StartWithSignIn is Start with an OpenID Connect provider.
func StartWithSignIn(tb testing.TB, provider *oidc.Provider) *Server {
	tb.Helper()
	s := &Server{dir: tb.TempDir(), URL: "http://127.0.0.1:0", signIn: provider}
	s.Start(tb)
	tb.Cleanup(s.Stop)
	return s
}

// Start starts the stopped server.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	s.Store, err = sqlite.Open(ctx, filepath.Join(s.dir, "muster.db"), sqlite.Options{})
	must(tb, err)
	s.Logs, err = tasklog.OpenIndexedDir(filepath.Join(s.dir, "logs"))
	must(tb, err)
	s.Blobs, err = blob.OpenDir(filepath.Join(s.dir, "blobs"))
	must(tb, err)
	must(tb, s.Store.PutKeys(ctx, store.Key{ID: "root", Name: "root", Role: string(auth.Admin), Hash: auth.Hash(AdminToken)}))
	log := slog.New(slog.NewTextHandler(testLog{tb}, nil))
	s.epoch++
	events := eventbus.New("epoch" + string(rune('0'+s.epoch)))
	s.Secrets, err = secrets.New(ctx, secrets.Config{Store: s.Store, KeyFile: filepath.Join(s.dir, "secrets.key"), Log: log})
	must(tb, err)
	s.Engine = engine.New(engine.Config{Secrets: s.Secrets, PlainSecrets: true, Store: s.Store, Logs: s.Logs, Blobs: s.Blobs, Events: events, Log: log})
	s.History = history.Open(history.Config{Source: s.Engine, File: filepath.Join(s.dir, "history"), Log: log})
	verifier := cidcheck.New(s.Store, s.Blobs, log)
	pages, err := dashboard.New(fstest.MapFS{"index.html": {Data: []byte("<html>the dashboard</html>")}, "assets/app.js": {Data: []byte("run()")}})
	must(tb, err)
	linkHandler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		worker, err := api.WorkerOfRequest(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, "connected as "+string(worker.Worker))
	})
	webhooks, err := webhook.New(tb.Context(), webhook.Config{KeyFile: filepath.Join(s.dir, "webhook.key"), Store: s.Store, Events: events, Version: "v0.0.0-test", Log: log, Explain: func(ctx context.Context, id muster.TaskID) (string, error) {
		x, err := s.Engine.Explain(ctx, id)
		return x.Summary, err
	}})
	must(tb, err)
	sweep := sweeper.New(sweeper.Config{Store: s.Store, Engine: s.Engine, Logs: s.Logs, Blobs: s.Blobs, Server: retention.DefaultServerPolicy(), Log: log})
	s.Exec = execrelay.New(s.Engine, log)
	_, identity, err := ed25519.GenerateKey(nil)
	must(tb, err)
	recorder := auditlog.New(s.Store, log)
	cfg := api.Config{
		Exec: s.Exec, LinkExec: linkHandler, LinkExecPoll: linkHandler,
		Engine: s.Engine, JobEditor: s.Engine, Store: s.Store, Keys: s.Store, Sessions: sessiontoken.New(identity), Enrol: s.Store, Logs: s.Logs, Blobs: s.Blobs, Grants: s.Store, LateReports: s.Store, BlobNeeds: s.Engine, VerifyCID: verifier.Verify, Events: events, Parse: spec.ParseContext, Kinds: catalog.New(log),
		LinkSocket: linkHandler, LinkPoll: linkHandler, Heartbeat: muster.Duration(time.Second), Log: log, Version: "v0.0.0-test", Dashboard: pages,
		Views:    api.Views{Fleet: s.Engine, History: s.History, Jobs: s.Store, Disk: func() overview.Disk { return overview.Disk{Free: 50 << 30, Size: 100 << 30} }},
		Webhooks: webhooks, Secrets: s.Secrets, Cache: s.Store, Schedules: schedules.New(schedules.Config{
			Store: s.Store, Engine: s.Engine, Audit: recorder, Admit: func(*muster.Spec) []muster.FieldError { return nil }, Log: log,
		}), // which has no runs here
		Notifications: s.Store, Retention: sweep, // which deletes no files here
		Audit: recorder, AuditLog: s.Store, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }), ObserveRequest: s.requests.observe,
	}
	if s.signIn != nil {
		cfg.URL, cfg.SignIn = PublicURL, s.signIn
	}
	handler := api.New(cfg)
	if s.middleware != nil {
		handler = s.middleware(handler)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.URL[len("http://"):])
	must(tb, err)
	s.URL = "http://" + listener.Addr().String()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Engine.Run(ctx) })
	running.Go(func() { _ = s.Exec.Run(ctx) })
	running.Go(func() { _ = recorder.Run(ctx) })
	running.Go(func() { _ = webhooks.Run(ctx) })
	running.Go(func() { _ = server.Serve(listener) })
	<-s.Engine.Ready()
	s.stop = sync.OnceFunc(func() {
		_ = server.Close()
		cancel()
		running.Wait()
		verifier.Close()
		_ = s.Store.Close()
	})
}

// Stop closes all connections and stops the server. It may be called more than once.
func (s *Server) Stop() { s.stop() }

// Client returns a client with the admin token.
func (s *Server) Client(tb testing.TB) *client.Client {
	tb.Helper()
	return s.ClientWith(tb, AdminToken)
}

// ClientWith returns a client with a token.
func (s *Server) ClientWith(tb testing.TB, token string) *client.Client {
	tb.Helper()
	c, err := client.New(s.URL, token, client.Options{
		HTTP: &http.Client{Transport: &http.Transport{}}, RetryTimeout: time.Minute, // a restart of the server may take a while
	})
	must(tb, err)
	return c
}

// CreateKey creates a key and returns its token.
func (s *Server) CreateKey(tb testing.TB, role auth.Role, project string, worker muster.WorkerID) string {
	tb.Helper()
	token := "token-of-" + string(role) + "-" + project + string(worker)
	must(tb, s.Store.PutKeys(tb.Context(), store.Key{
		ID: token, Name: token, Role: string(role), Project: project, Worker: worker, Hash: auth.Hash(token),
	}))
	return token
}

// Worker is a simulated worker.
type Worker struct {
	ID      muster.WorkerID
	tb      testing.TB
	session link.Session
	seq     uint64
	mu      sync.Mutex
	frames  []*link.ToWorker
	arrived chan struct{}
}

// ConnectWorker connects a worker with resources for many tasks, which already runs the attempts held.
func (s *Server) ConnectWorker(tb testing.TB, id muster.WorkerID, held ...muster.AttemptID) *Worker {
	tb.Helper()
	w := &Worker{ID: id, tb: tb, seq: 1, arrived: make(chan struct{}, 1)}
	session, _, err := s.Engine.Open(tb.Context(), &link.Hello{
		Version: link.Version, Worker: id, Name: "name-of-" + string(id), Held: held,
		Offer: muster.Offer{
			Kinds:     []string{muster.KindNoop, muster.KindProcess, muster.KindScript},
			Resources: muster.Resources{CPUs: 8, Memory: 8 << 30, Disk: 8 << 30, Slots: 100},
		},
	}, w.onFrame)
	must(tb, err)
	w.session = session
	w.Send(&link.ToServer{Ready: &link.Ready{}})
	return w
}

func (w *Worker) onFrame(f *link.ToWorker) {
	w.mu.Lock()
	w.frames = append(w.frames, f)
	w.mu.Unlock()
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

// Send sends a frame to the engine.
func (w *Worker) Send(f *link.ToServer) {
	w.tb.Helper()
	w.seq++
	f.Seq = w.seq
	must(w.tb, w.session.Handle(context.Background(), f))
}

// Goodbye ends the session with a goodbye: running attempts are lost.
func (w *Worker) Goodbye() { w.session.Close(true) }

// StartNext waits for the next assigned attempt and starts it.
func (w *Worker) StartNext() muster.AttemptID {
	w.tb.Helper()
	deadline := time.After(time.Minute)
	for {
		w.mu.Lock()
		for i, f := range w.frames {
			if len(f.Assign) == 0 {
				continue
			}
			id := f.Assign[0].Attempt
			if f.Assign = f.Assign[1:]; len(f.Assign) == 0 {
				w.frames = append(w.frames[:i:i], w.frames[i+1:]...)
			}
			w.mu.Unlock()
			w.Send(&link.ToServer{Started: []link.Started{{Attempt: id, At: muster.NewTime(time.Now())}}})
			return id
		}
		w.mu.Unlock()
		select {
		case <-w.arrived:
		case <-deadline:
			w.tb.Fatal("the worker got no assignment")
		}
	}
}

// EncodeRecord encodes one record of output.
func EncodeRecord(stream tasklog.Stream, text string) []byte {
	return tasklog.AppendRecord(nil, tasklog.Record{Stream: stream, At: time.UnixMilli(1_700_000_000_000), Data: []byte(text)})
}

// Finish reports the end of an attempt, with its artifacts and the size of its log.
func (w *Worker) Finish(id muster.AttemptID, outcome muster.Outcome, logSize int64, artifacts ...muster.Artifact) {
	w.tb.Helper()
	report := muster.Report{Attempt: id, Outcome: outcome, LogSize: logSize, Artifacts: artifacts, FinishedAt: muster.NewTime(time.Now())}
	if outcome == muster.AttemptFailed {
		code := 1
		report.Reason, report.ExitCode, report.Message = muster.ExitCode, &code, "exit code 1"
	}
	w.Send(&link.ToServer{Finished: []muster.Report{report}})
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// testLog writes a server's log to the test's log until the test ends.
type testLog struct{ tb testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	if l.tb.Context().Err() == nil {
		l.tb.Log(string(b))
	}
	return len(b), nil
}
