//go:build unix

package container

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// runLoop runs Run until the test ends, and returns a channel of its calls of changed.
func (w *testEnv) runLoop() <-chan error {
	changes := make(chan error, 10)
	ctx, end := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, func(cause error) { changes <- cause }) }()
	w.t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return changes
}

// waitChange waits for the next change of readiness.
func (w *testEnv) waitChange(changes <-chan error, ready bool) error {
	w.t.Helper()
	select {
	case cause := <-changes:
		if (cause == nil) != ready {
			w.t.Fatalf("the engine is ready: %v (%v), want %v", cause == nil, cause, ready)
		}
		return cause
	case <-time.After(time.Minute):
		w.t.Fatal("no change of the engine for a minute")
		return nil
	}
}

func TestEngineReconnects(t *testing.T) {
	d := containertest.StartDaemon(t)
	w := newTestEnvAt(t, d.Host(), nil)
	w.timeouts.request = 5 * time.Second // a healthy engine must not count as hanging
	image := w.shell()
	if err := w.Sweep(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	changes := w.runLoop()
	w.waitChange(changes, true)
	left, err := w.Create(t.Context(), newSpec(image, "true"), w.lines.add, w.lines.add)
	if err != nil {
		t.Fatal(err)
	}

	d.Stop()
	if cause := w.waitChange(changes, false); !strings.Contains(cause.Error(), d.Host()) {
		t.Errorf("%v: want it to name %s", cause, d.Host())
	}
	_, err = w.create(newSpec(image, "true"))
	wantTaskError(t, err, muster.EngineFailed, d.Host())
	if err := w.Remove(t.Context(), left); err == nil {
		t.Error("a container was removed by an unreachable engine")
	}
	d.Restart()
	w.waitChange(changes, true)
	w.await("what could not be removed is swept", func() bool {
		list, err := w.cfg.Engine.Containers(t.Context(), LabelWorker, w.cfg.Worker)
		return err == nil && len(list) == 0
	})

	d.SetFrozen(true)
	if cause := w.waitChange(changes, false); !strings.Contains(cause.Error(), "did not answer within") && !strings.Contains(cause.Error(), "deadline") {
		t.Errorf("%v: want an error that there was no response", cause)
	}
	d.SetFrozen(false)
	w.waitChange(changes, true)
	if len(changes) != 0 {
		t.Error("an unexpected change of the engine")
	}
}

func TestEngineIsMissing(t *testing.T) {
	host := "unix://" + filepath.Join(t.TempDir(), "none.sock")
	engine, err := docker.Open(host)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	w := &testEnv{t: t, host: host}
	if w.Containers, err = New(Config{Engine: engine, Worker: "w", Dir: t.TempDir(), Credentials: writeAuthFile(t, nil)}); err != nil {
		t.Fatal(err)
	}
	w.timeouts = testTimeouts
	_, err = w.Create(t.Context(), newSpec("python:3", "true"), w.lines.add, w.lines.add)
	wantTaskError(t, err, muster.EngineFailed, "not checked yet")
	w.waitChange(w.runLoop(), false)
	_, err = w.Create(t.Context(), newSpec("python:3", "true"), w.lines.add, w.lines.add)
	wantTaskError(t, err, muster.EngineFailed, host)
	if err := w.Sweep(t.Context(), nil); err == nil {
		t.Error("swept without an engine")
	}
}

func TestEngineFailsToCreateAContainer(t *testing.T) {
	for status, reason := range map[int]muster.Reason{http.StatusInternalServerError: muster.EngineFailed, http.StatusBadRequest: muster.StartFailed} {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "sock"))
		if err != nil {
			t.Fatal(err)
		}
		server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Api-Version", "1.44")
			w.Header().Set("Content-Type", "application/json")
			switch path := q.URL.Path; {
			case strings.HasSuffix(path, "/version"):
				_, _ = fmt.Fprintf(w, `{"Version": "25.0.1", "ApiVersion": "1.44", "Os": "linux", "Arch": %q}`, runtime.GOARCH)
			case strings.HasSuffix(path, "/containers/json"):
				_, _ = w.Write([]byte("[]"))
			case strings.HasSuffix(path, "/containers/create"):
				w.WriteHeader(status)
				_, _ = w.Write([]byte(`{"message": "containerd is not there"}`))
			default: // its facts, and the image
				_, _ = fmt.Fprintf(w, `{"Id": "sha256:00", "Os": "linux", "Architecture": %q}`, runtime.GOARCH)
			}
		})}}
		server.Start()
		t.Cleanup(server.Close)
		w := newTestEnvAt(t, "unix://"+l.Addr().String(), nil)
		_, err = w.create(newSpec("python:3", "true"))
		wantTaskError(t, err, reason, "containerd is not there")
		if len(w.created) != 0 {
			t.Errorf("%v is in use, but was not created", w.created)
		}
	}
}

// throughProxy is a proxy of an engine: it calls handle first, which returns whether it has answered.
func throughProxy(t *testing.T, host string, handle func(http.ResponseWriter, *http.Request) bool) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "sock"))
	if err != nil {
		t.Fatal(err)
	}
	through := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(host, "unix://"))
	}}
	t.Cleanup(through.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{Transport: through, Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" }}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !handle(w, q) {
			proxy.ServeHTTP(w, q)
		}
	})}}
	server.Start()
	t.Cleanup(server.Close)
	return "unix://" + l.Addr().String()
}

// TestContainerCreatedTooLateIsRemoved checks that a container is removed that an engine creates after its request was abandoned,
// and after it was looked for.
func TestContainerCreatedTooLateIsRemoved(t *testing.T) {
	asked, resume, made := make(chan struct{}), make(chan struct{}), make(chan struct{})
	host := containertest.SharedEngine(t)
	w := newTestEnvAt(t, throughProxy(t, host, func(w http.ResponseWriter, q *http.Request) bool {
		if !strings.HasSuffix(q.URL.Path, "/containers/create") {
			return false
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		close(asked)
		<-resume
		late := q.Clone(context.WithoutCancel(q.Context()))
		late.Body = io.NopCloser(bytes.NewReader(body))
		late.RequestURI, late.URL.Scheme, late.URL.Host = "", "http", "engine"
		answer, err := (&http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(host, "unix://"))
		}}).RoundTrip(late)
		if err != nil || answer.StatusCode != http.StatusCreated {
			t.Errorf("the container was not created: %v, %v", answer, err)
		}
		if err == nil {
			_ = answer.Body.Close()
		}
		close(made)
		return true
	}), nil)
	if err := w.Sweep(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	w.waitChange(w.runLoop(), true)
	w.mu.Lock()
	w.sweepPending, w.lateUntil = false, time.Time{} // it has been there for long
	w.mu.Unlock()
	b := newSpec(w.shell(), "true")
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-asked
		stop()
	}()
	_, err := w.Create(ctx, b, w.lines.add, w.lines.add)
	wantTaskError(t, err, muster.WorkerInternal, "stopped")
	close(resume)
	<-made
	w.await("what was made too late is removed", func() bool {
		list, err := w.cfg.Engine.Containers(t.Context(), LabelWorker, w.cfg.Worker)
		return err == nil && len(list) == 0
	})
}

// TestHangingEngineEndsAPull checks that a task that waits for an image fails if the engine does not answer.
func TestHangingEngineEndsAPull(t *testing.T) {
	w := newTestEnvAt(t, throughProxy(t, containertest.SharedEngine(t), func(_ http.ResponseWriter, q *http.Request) bool {
		if !strings.HasSuffix(q.URL.Path, "/images/json") {
			return false
		}
		<-q.Context().Done()
		return true
	}), nil)
	w.timeouts.operation = 2 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := w.Create(ctx, newSpec("127.0.0.1:1/nobody/has:this", "true"), w.lines.add, w.lines.add)
	wantTaskError(t, err, muster.EngineFailed, "in time")
}

// TestHangingEngineInASweepIsDetected checks that what is done between two questions to the engine keeps no answer from
// every worker with containers.
func TestHangingEngineInASweepIsDetected(t *testing.T) {
	const well, frozen, over = 0, 1, 2
	var is atomic.Int32
	w := newTestEnvAt(t, throughProxy(t, containertest.SharedEngine(t), func(_ http.ResponseWriter, q *http.Request) bool {
		if strings.HasSuffix(q.URL.Path, "/containers/json") {
			is.CompareAndSwap(well, frozen)
		}
		if is.Load() != frozen {
			return false
		}
		<-q.Context().Done()
		return true
	}), nil)
	w.timeouts.request = 5 * time.Second
	w.recovered = map[string]bool{} // it sweeps
	changes := w.runLoop()
	w.waitChange(changes, true)
	w.waitChange(changes, false)
	is.Store(over)
}

// TestFailedRemovalDoesNotBlockOthers checks that a hanging removal does not delay others.
func TestFailedRemovalDoesNotBlockOthers(t *testing.T) {
	var stuck atomic.Pointer[string]
	w := newTestEnvAt(t, throughProxy(t, containertest.SharedEngine(t), func(_ http.ResponseWriter, q *http.Request) bool {
		if id := stuck.Load(); q.Method != http.MethodDelete || id == nil || !strings.HasSuffix(q.URL.Path, *id) {
			return false
		}
		<-q.Context().Done()
		return true
	}), nil)
	other := w.mustCreate(newSpec(w.shell(), "true"))
	last := w.mustCreate(newSpec(w.shell(), "true")) // engines list it first
	stuck.Store(&last.ID)
	next := newTestEnvAt(t, w.host, func(c *Config) { c.Worker = w.cfg.Worker })
	next.timeouts.request = 8 * time.Second // for the other one, too, whose removal may take its time
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := next.Sweep(ctx, nil); err == nil {
		t.Error("no error for a container that cannot be removed")
	}
	if _, err := w.api.ContainerInspect(t.Context(), other.ID, client.ContainerInspectOptions{}); !cerrdefs.IsNotFound(err) {
		t.Errorf("the other one: %v", err)
	}
	stuck.Store(nil)
}

func TestPodman(t *testing.T) {
	w := newTestEnvAt(t, containertest.StartPodman(t), nil)
	if w.About().Name != "podman" {
		t.Errorf("the engine is %+v", w.About())
	}
	r := containertest.NewRegistry(t)
	ref, digest := pushImage(w, r, "acme/podman:1", 1<<20)
	c := w.mustCreate(newSpec(ref, "true"))
	if want := strings.TrimSuffix(ref, ":1") + "@" + digest; c.Image != want {
		t.Errorf("the image is %s: want %s", c.Image, want)
	}
	w.mustCreate(specWith(ref, muster.Container{Pull: muster.PullAlways}, "true"))
	b := specWith(ref, muster.Container{User: "1000:1000", ReadOnly: true}, "sh", "-c", "id -u; touch /etc/x; grep NoNewPrivs /proc/self/status; echo $MINE; exit 7")
	b.HasInterpreter, b.Env = true, []string{"MINE=task"}
	b.Task.Spec.Network = muster.NetworkNone
	b.Task.Grant = muster.Grant{Memory: 64 << 20, CPUs: 0.5, PIDs: 50}
	out, code := w.runContainer(b)
	for _, part := range []string{"1000\n", "Read-only file system", "NoNewPrivs:\t1", "task\n"} {
		if !strings.Contains(out, part) {
			t.Errorf("it printed %q: want %q in it", out, part)
		}
	}
	if code != 7 {
		t.Errorf("it exited with %d: want 7", code)
	}
	for image, reason := range map[string]muster.Reason{
		r.Addr + "/acme/podman:2": muster.ImageMissing, r.Addr + "/acme/nothere:1": muster.ImageMissing, "127.0.0.1:1/acme/x:1": muster.ImagePull,
	} {
		_, err := w.create(newSpec(image, "true"))
		wantTaskError(t, err, reason, image)
	}
	second, _ := pushImage(w, r, "acme/second:1", 1000)
	r.RequireAuth("ann", "s3cret")
	_, err := w.create(newSpec(second, "true"))
	wantTaskError(t, err, muster.ImageMissing, "docker login")
	r.RequireAuth("", "")
	third, _ := pushImage(w, r, "acme/third:1", 1000)
	for name, fault := range map[string]containertest.Fault{"corrupt": containertest.Corrupt, "failing": containertest.Failing} {
		r.SetFault(fault)
		_, err := w.create(newSpec(third, "true"))
		wantTaskError(t, err, muster.ImagePull, third)
		t.Log(name, err)
	}
	if err := w.Sweep(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
