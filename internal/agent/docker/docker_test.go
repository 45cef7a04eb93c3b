package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestUpgradedEngine checks that one is spoken to in a version that it knows, also if it is another one
// than when it was spoken to first.
func TestUpgradedEngine(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "sock"))
	if err != nil {
		t.Skip("no sockets of Unix: ", err)
	}
	var speaks atomic.Value // the one version that it knows
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		v, ok := speaks.Load().(string)
		w.Header().Set("Api-Version", v)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case q.URL.Path == "/_ping":
		case !ok || !strings.HasPrefix(q.URL.Path, "/v"+v+"/"):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"message": "the version of %s is not taken: this is %s"}`, q.URL.Path, v)
		case strings.HasSuffix(q.URL.Path, "/containers/json"):
			_, _ = w.Write([]byte("[]"))
		default:
			_, _ = fmt.Fprintf(w, `{"ApiVersion": %q}`, v)
		}
	})}}
	server.Start()
	defer server.Close()
	e, err := Open("unix://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, v := range []string{"1.44", "1.51", "1.47"} {
		speaks.Store(v)
		about, err := e.Info(t.Context())
		if err != nil || about.API != v {
			t.Fatalf("%+v, %v: want %s", about, err, v)
		}
		if _, err := e.Containers(t.Context(), "", ""); err != nil {
			t.Error(err)
		}
	}
	// It was away between two questions whether it is there.
	for _, v := range []string{"1.47", "1.51"} {
		speaks.Store(v)
		if err := e.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Containers(t.Context(), "", ""); err != nil {
			t.Error(err)
		}
	}
}

// TestErrorMessages checks that errors omit the client's HTTP requests and contain the whole message of the engine.
func TestErrorMessages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve := func(name string, speak func(net.Conn)) string {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, name))
		if err != nil {
			t.Skip("no sockets of Unix: ", err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if speak != nil {
					_, _ = c.Read(make([]byte, 1000))
					speak(c)
					_ = c.Close()
				}
			}
		}()
		return "unix://" + l.Addr().String()
	}
	late := errors.New("it took too long")
	message := func(text string) func(net.Conn) {
		return func(c net.Conn) { _, _ = io.WriteString(c, text) }
	}
	for _, c := range []struct {
		name, host string
		want       string
		kind       error
	}{
		{"missing", "unix://" + filepath.Join(dir, "none"), "no such file or directory", ErrUnreachable},
		{"refused", "tcp://127.0.0.1:1", "connection refused", ErrUnreachable},
		{"closed", serve("closed", message("")), "the connection was closed", ErrUnreachable},
		{"no engine", serve("ssh", message("SSH-2.0-x\r\n")), `net/http: HTTP/1.x transport connection broken: malformed HTTP response "SSH-2.0-x"; Are you trying to connect to a TLS-enabled daemon without TLS?`, ErrUnreachable},
		{"hangs", serve("hangs", nil), "it took too long", late},
		{"fails", serve("fails", message("HTTP/1.1 500 x\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"+`{"message": "Get \"https://reg.example/v2/\": dial tcp: no route"}`)), `Get "https://reg.example/v2/": dial tcp: no route`, ErrEngineFailed},
		{"taken, as Podman says it", serve("taken", message("HTTP/1.1 500 x\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"+`{"message": "creating container storage: the container name \"x\" is already in use by 1f3: that name is already in use"}`)), `creating container storage: the container name "x" is already in use by 1f3: that name is already in use`, ErrConflict},
	} {
		e, err := Open(c.host)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
		if errors.Is(c.kind, late) {
			cancel()
			ctx, cancel = context.WithTimeoutCause(t.Context(), time.Millisecond, late)
		}
		_, err = e.Containers(ctx, "", "")
		cancel()
		if want := "the containers cannot be listed: " + c.want; err == nil || err.Error() != want || !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, want %s", c.name, err, want)
		}
		_ = e.Close()
	}
}

// TestContainerEntrypoint checks that the init which Podman names first is not taken for it.
func TestContainerEntrypoint(t *testing.T) {
	for _, c := range []struct {
		path string
		args []string
		want string
	}{
		{"train", []string{"--", "x"}, "train"}, {"/run/podman-init", []string{"--", "train", "x"}, "train"}, {"/run/podman-init", []string{"x"}, "/run/podman-init"}, {"train", nil, "train"},
	} {
		if got := program(c.path, c.args); got != c.want {
			t.Errorf("of %s %q it is %s", c.path, c.args, got)
		}
	}
}

func TestSwapOfContainers(t *testing.T) {
	for _, c := range []struct {
		plan ContainerSpec
		want int64 // of memory and swap together; 0 is unsaid, -1 without a limit
	}{
		{ContainerSpec{Memory: 1 << 30}, 1 << 30},
		{ContainerSpec{Memory: 1 << 30, UnlimitedSwap: true}, -1},
		{ContainerSpec{UnlimitedSwap: true}, 0},
	} {
		if h := c.plan.hostConfig(); h.Memory != c.plan.Memory || h.MemorySwap != c.want {
			t.Errorf("%+v has %d of memory and %d with swap, want %d", c.plan, h.Memory, h.MemorySwap, c.want)
		}
	}
}
