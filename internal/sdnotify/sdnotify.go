// Package sdnotify reports the state of a service to systemd: see sd_notify(3).
package sdnotify

import (
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
)

// Notifier sends the state of this process to systemd. A nil Notifier, of a process that systemd did not start, does nothing. Its methods
// are safe for concurrent use.
type Notifier struct {
	conn     *net.UnixConn
	interval time.Duration // between two messages; a third of the watchdog's at most
	watchdog bool

	mu          sync.Mutex
	checks      []*check
	status      func() string
	ready       bool
	stopping    bool
	extendUntil time.Time // how long systemd's timeout of a start or stop is extended
	sentStatus  string
	failed      bool // a send failed, which is logged
	dead        bool // a check failed
}

const (
	maxInterval = 2 * time.Second
	sendTimeout = time.Second
	extension   = time.Minute // of a timeout, with each message
	maxStart    = 10 * time.Minute
)

// FromEnv returns the Notifier of this process, nil if systemd does not expect any. It removes the variables, so that child processes
// cannot report in this one's name.
func FromEnv() (*Notifier, error) {
	address, usec, pid := os.Getenv("NOTIFY_SOCKET"), os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name) // fails for no such name
	}
	if address == "" {
		return nil, nil //nolint:nilnil // not started by systemd
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot report to the service manager at NOTIFY_SOCKET: %w", err)
	}
	n := &Notifier{conn: conn, interval: maxInterval, extendUntil: time.Now().Add(maxStart)}
	if limit, err := strconv.ParseInt(usec, 10, 64); err == nil && limit > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog, n.interval = true, min(maxInterval, max(time.Millisecond, time.Duration(limit)*time.Microsecond/3))
	}
	return n, nil
}

// check returns an error if its part of the program does not respond before the context ends.
type check func(context.Context) error

// Watch adds a check of liveness until remove is called: the watchdog is served only while each check returns nil within a third of its
// time. A check must return when its context ends.
func (n *Notifier) Watch(fn func(context.Context) error) (remove func()) {
	if n == nil {
		return func() {}
	}
	c := check(fn)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.checks = append(slices.Clone(n.checks), &c)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.checks = slices.DeleteFunc(slices.Clone(n.checks), func(other *check) bool { return other == &c })
	}
}

// ShowStatus sets the source of the line that systemctl status shows.
func (n *Notifier) ShowStatus(status func() string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status = status
}

// Ready reports that the service has started.
func (n *Notifier) Ready() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ready && !n.stopping {
		n.ready = true
		_ = n.send("READY=1") // Run logs that messages fail
	}
}

// Stopping reports that the service stops. It may take as long as limit, whatever the timeout of its unit. Of several calls the longest
// limit counts.
func (n *Notifier) Stopping(limit time.Duration) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	until := time.Now().Add(limit)
	if !n.stopping || until.After(n.extendUntil) {
		n.extendUntil = until
	}
	if !n.stopping {
		n.stopping = true
		_ = n.send("STOPPING=1", extend()) // Run logs that messages fail
	}
}

// Run serves the watchdog, extends timeouts and reports the status until ctx ends. A failed message is logged once.
func (n *Notifier) Run(ctx context.Context, log *slog.Logger) {
	if n == nil {
		return
	}
	defer func() { _ = n.conn.Close() }()
	tick := time.NewTicker(n.interval)
	defer tick.Stop()
	for {
		n.report(ctx, log)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// report sends one message.
func (n *Notifier) report(ctx context.Context, log *slog.Logger) {
	n.mu.Lock()
	checks, status, serving := n.checks, n.status, n.ready && !n.stopping
	n.mu.Unlock()
	var dead error
	if serving && n.watchdog {
		dead = n.check(ctx, checks)
	}
	var text string
	if status != nil {
		text = strings.ReplaceAll(status(), "\n", " ")
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	var lines []string
	switch {
	case dead == nil:
		lines = append(lines, "WATCHDOG=1")
	case !n.dead:
		log.Error("not responding: the watchdog of systemd restarts this service soon", slog.Any("error", dead))
	}
	n.dead = dead != nil
	if (!n.ready || n.stopping) && time.Now().Before(n.extendUntil) {
		lines = append(lines, extend())
	}
	if text != n.sentStatus {
		n.sentStatus = text
		lines = append(lines, "STATUS="+text)
	}
	if err := n.send(lines...); err != nil && !n.failed {
		n.failed = true
		log.Warn("cannot report to the service manager", slog.Any("error", err))
	}
}

// check returns the first error of the checks, which have one interval together.
func (n *Notifier) check(ctx context.Context, checks []*check) error {
	ctx, cancel := context.WithTimeout(ctx, n.interval)
	defer cancel()
	for _, c := range checks {
		if err := (*c)(ctx); err != nil {
			return err
		}
	}
	return nil
}

func extend() string { return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(extension.Microseconds(), 10) }

// send sends one message. n.mu is locked.
func (n *Notifier) send(lines ...string) error {
	if len(lines) == 0 {
		return nil
	}
	if err := n.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, err := n.conn.Write([]byte(strings.Join(lines, "\n")))
	return err
}
