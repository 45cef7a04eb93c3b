package connlimit_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/connlimit"
)

// env is a server of few connections. /key?n is authenticated and /open?n is not; both wait until release.
type env struct {
	t       *testing.T
	addr    string
	entered chan string
	release chan struct{}
}

// rankNew is longer than the pauses of a busy machine.
const rankNew = 4 * time.Second

func newEnv(t *testing.T, total int) *env {
	t.Helper()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &env{t: t, addr: inner.Addr().String(), entered: make(chan string, 100), release: make(chan struct{})}
	server := &http.Server{ReadHeaderTimeout: time.Minute, ConnContext: connlimit.ConnContext,
		Handler: connlimit.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/key" {
				defer connlimit.MarkAuthenticated(r.Context())()
			}
			if r.URL.Path != "/quick" {
				w.entered <- r.URL.RawQuery
				<-w.release
			}
			_, _ = io.WriteString(rw, "ok")
		}))}
	limiter := connlimit.New(total)
	limiter.FirstRequestGrace = rankNew
	done := make(chan struct{})
	go func() {
		_ = server.Serve(limiter.Listen(inner))
		close(done)
	}()
	t.Cleanup(func() {
		select {
		case <-w.release:
		default:
			close(w.release)
		}
		_ = server.Close()
		<-done
	})
	return w
}

// dial connects, from an address of loopback, and sends a request for path if it is not "".
func (w *env) dial(from, path string) net.Conn {
	w.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(w.t.Context(), "tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	if path != "" {
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			w.t.Fatal(err)
		}
	}
	return c
}

// wantClosed waits until the server closes a connection.
func (w *env) wantClosed(name string, c net.Conn) {
	w.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, errTimeout(err)) {
		w.t.Errorf("%s was not closed", name)
	}
}

// wantOpen looks shortly whether the server closes a connection.
func (w *env) wantOpen(name string, c net.Conn) {
	w.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, errTimeout(err)) {
		w.t.Errorf("%s was closed: %v", name, err)
	}
}

// errTimeout returns err if it is a timeout.
func errTimeout(err error) error {
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
		return err
	}
	return errors.New("no timeout")
}

// waitServed waits until a new connection is served, from an address.
func (w *env) waitServed(from string) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		c := w.dial(from, "/quick")
		_ = c.SetReadDeadline(deadline)
		b := make([]byte, 15)
		_, err := io.ReadFull(c, b)
		_ = c.Close()
		if err == nil && string(b) == "HTTP/1.1 200 OK" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("a new connection reads %q, %v", b, err)
		}
	}
}

// Connections are replaced by rank, and those with a valid key never.
func TestClosedConnections(t *testing.T) {
	const total = 40
	w := newEnv(t, total)
	var busy []net.Conn
	for i := range 20 {
		busy = append(busy, w.dial("127.0.0.2", "/key?"+strconv.Itoa(i)))
		<-w.entered
	}
	open := w.dial("127.0.0.2", "/open?0")
	<-w.entered
	idle := w.dial("127.0.0.3", "/quick")
	if _, err := io.ReadFull(idle, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	var silent []net.Conn
	for range total - 22 {
		silent = append(silent, w.dial("127.0.0.4", ""))
	}
	time.Sleep(rankNew + 100*time.Millisecond) // from then on they count as silent
	w.waitServed("127.0.0.5")
	w.wantClosed("the oldest silent connection", silent[0])
	for range total - 22 {
		w.dial("127.0.0.6", "") // new ones, for which all silent ones go
	}
	for _, c := range silent {
		w.wantClosed("a silent connection", c)
	}
	w.wantOpen("an idle connection", idle)
	w.dial("127.0.0.6", "")
	w.dial("127.0.0.6", "")
	w.wantClosed("an idle connection", idle)
	w.waitServed("127.0.0.5")
	w.wantOpen("an open request", open)
	for _, c := range busy {
		w.wantOpen("an authenticated request", c)
	}
}

// One address does not fill the server, even with requests that are not closed.
func TestAddressLimit(t *testing.T) {
	const total = 40
	w := newEnv(t, total)
	for i := range total {
		c := w.dial("127.0.0.2", "/key?"+strconv.Itoa(i))
		if i < total/4*3 {
			<-w.entered
			continue
		}
		w.wantClosed("a connection beyond the bound of its address", c)
	}
	w.waitServed("127.0.0.3")
	close(w.release)
	w.waitServed("127.0.0.2")
}

// Many connections that are served and closed leave nothing behind.
func TestClosedConnectionsAreReleased(t *testing.T) {
	w := newEnv(t, 40)
	for range 400 {
		w.waitServed("127.0.0.2")
	}
}

func TestTotalLimit(t *testing.T) {
	for descriptors, want := range map[uint64]int{0: 32, 400: 266, 1024: 682, 1 << 20: 32_768, 1<<64 - 1: 32_768} {
		if got := connlimit.ConnsFor(descriptors); got != want {
			t.Errorf("%d descriptors: %d connections, want %d", descriptors, got, want)
		}
	}
}
