package sdnotify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/testkit"
)

// manager is the service manager's side of the socket.
type manager struct {
	*testing.T

	conn *net.UnixConn
}

// listen sets the variables of a service whose watchdog has the given time; none if it is 0.
func listen(t *testing.T, address string, watchdog time.Duration) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", address)
	if watchdog > 0 {
		t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
		t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	}
	return &manager{t, conn}
}

// receive returns the lines of the next message, nil if none comes within limit.
func (m *manager) receive(limit time.Duration) []string {
	m.Helper()
	buf := make([]byte, 4096)
	testkit.NoError(m, m.conn.SetReadDeadline(time.Now().Add(limit)))
	n, err := m.conn.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	testkit.NoError(m, err)
	return strings.Split(string(buf[:n]), "\n")
}

// await receives messages until one has the line.
func (m *manager) await(line string) []string {
	m.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		lines := m.receive(time.Minute)
		if slices.Contains(lines, line) {
			return lines
		}
	}
	m.Fatalf("no message has %s", line)
	return nil
}

// start returns a running notifier.
func start(t *testing.T) *Notifier {
	t.Helper()
	n, err := FromEnv()
	testkit.NoError(t, err)
	if n == nil {
		t.Fatal("no notifier")
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		n.Run(ctx, testkit.Logger(t))
		close(done)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return n
}

func TestStates(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"), 30*time.Millisecond)
	n := start(t)
	var status atomic.Value
	status.Store("loading")
	n.ShowStatus(func() string { return fmt.Sprint(status.Load()) })
	const extension = "EXTEND_TIMEOUT_USEC=60000000"
	m.await("STATUS=loading")
	if lines := strings.Join(m.await(extension), " "); !strings.Contains(lines, "WATCHDOG=1") || strings.Contains(lines, "STATUS=") {
		t.Errorf("a message while it starts is %q", lines) // the watchdog watches from the beginning after an upgrade in place
	}
	n.Ready()
	n.Ready()
	m.await("READY=1")
	status.Store("serving\nforged")
	m.await("STATUS=serving forged")
	if lines := m.await("WATCHDOG=1"); len(lines) != 1 {
		t.Errorf("a message of a running service is %q", lines)
	}
	n.Stopping(time.Hour)
	m.await("STOPPING=1")
	if lines := m.await(extension); len(lines) != 2 {
		t.Errorf("a message while it stops is %q", lines)
	}
	n.Ready() // a start that ends after the stop began
	for range 5 {
		if lines := m.receive(time.Minute); strings.Contains(strings.Join(lines, " "), "READY") {
			t.Errorf("a service that stops reports %q", lines)
		}
	}
}

// TestStopIsLimited checks that a service whose stop takes longer than it said gets no more time.
func TestStopIsLimited(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"), 30*time.Millisecond)
	n := start(t)
	n.Ready()
	n.Stopping(50 * time.Millisecond)
	n.Stopping(time.Millisecond) // does not shorten it
	m.await("STOPPING=1")
	testkit.Await(t, "no extension is asked for", func() bool {
		return !strings.Contains(strings.Join(m.receive(time.Minute), " "), "EXTEND_TIMEOUT_USEC")
	})
}

func TestWatchdogStopsWhenNotAlive(t *testing.T) {
	m := listen(t, filepath.Join(t.TempDir(), "notify"), 30*time.Millisecond)
	n := start(t)
	var stuck atomic.Bool
	check := func(ctx context.Context) error {
		if stuck.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	remove := n.Watch(check)
	n.Ready()
	m.await("READY=1")
	m.await("WATCHDOG=1")
	stuck.Store(true)
	testkit.Await(t, "the watchdog is not served", func() bool { return m.receive(300*time.Millisecond) == nil })
	stuck.Store(false)
	m.await("WATCHDOG=1")
	stuck.Store(true)
	testkit.Await(t, "the watchdog is not served", func() bool { return m.receive(300*time.Millisecond) == nil })
	remove()
	m.await("WATCHDOG=1")
}

func TestEnvironmentIsRemoved(t *testing.T) {
	listen(t, filepath.Join(t.TempDir(), "notify"), 9*time.Second)
	n, err := FromEnv()
	testkit.NoError(t, err)
	defer n.conn.Close()
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if v, ok := os.LookupEnv(name); ok {
			t.Errorf("%s=%s is left for child processes", name, v)
		}
	}
	if !n.watchdog || n.interval != maxInterval {
		t.Errorf("the interval is %s", n.interval)
	}
}

func TestWatchdogOfAnotherProcess(t *testing.T) {
	listen(t, filepath.Join(t.TempDir(), "notify"), 3*time.Millisecond)
	t.Setenv("WATCHDOG_PID", "1")
	n, err := FromEnv()
	testkit.NoError(t, err)
	defer n.conn.Close()
	if n.watchdog || n.interval != maxInterval {
		t.Errorf("the watchdog %t has the interval %s", n.watchdog, n.interval)
	}
}

func TestAbstractSocket(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Linux only")
	}
	m := listen(t, fmt.Sprintf("@muster-test-%d", os.Getpid()), 0)
	n := start(t)
	n.Ready()
	m.await("READY=1")
}

// TestWithoutAServiceManager checks that the methods of a nil Notifier do nothing.
func TestWithoutAServiceManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n, err := FromEnv()
	if n != nil || err != nil {
		t.Fatalf("it is %v, %v", n, err)
	}
	n.ShowStatus(func() string { return "" })
	n.Watch(func(context.Context) error { return nil })()
	n.Ready()
	n.Stopping(time.Hour)
	n.Run(t.Context(), slog.New(slog.DiscardHandler))
}

// TestManagerIsGone checks that a service starts with an error, and continues if its manager's socket disappears.
func TestManagerIsGone(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	if _, err := FromEnv(); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "NOTIFY_SOCKET") {
		t.Errorf("got %v", err)
	}
	m := listen(t, filepath.Join(t.TempDir(), "notify"), 3*time.Millisecond)
	n, err := FromEnv()
	testkit.NoError(t, err)
	testkit.NoError(t, m.conn.Close())
	var log strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	n.Run(ctx, slog.New(slog.NewTextHandler(&log, nil)))
	if got := strings.Count(log.String(), "cannot report to the service manager"); got != 1 {
		t.Errorf("%d warnings: %s", got, &log)
	}
}
