// Package mloctest starts Redis for tests of the MLOC dialect.
package mloctest

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/testkit"
)

// Redis is a real redis-server on a port of its own, which it keeps over restarts.
type Redis struct {
	TB   testing.TB
	Addr string // host:port
	cmd  *exec.Cmd
}

// StartRedis starts a server, which runs until the test ends. It skips the test where redis-server is not installed.
func StartRedis(tb testing.TB) *Redis {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal("redis-server is missing: install it with scripts/need redis-server")
		}
		tb.Skip("redis-server is not installed: scripts/need redis-server")
	}
	r := &Redis{TB: tb, Addr: mustertest.ReservePort(tb)}
	tb.Cleanup(r.Kill)
	r.Start()
	return r
}

// URL returns the address of the database.
func (r *Redis) URL() string { return "redis://" + r.Addr + "/0" }

// Start starts it again after Kill, without data.
func (r *Redis) Start() {
	r.TB.Helper()
	_, port, _ := net.SplitHostPort(r.Addr)
	r.cmd = exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", r.TB.TempDir())
	if err := r.cmd.Start(); err != nil {
		r.TB.Fatal(err)
	}
	c := r.Client()
	defer func() { _ = c.Close() }()
	testkit.Await(r.TB, "redis-server to answer", func() bool { return c.Ping(r.TB.Context()).Err() == nil })
}

// Kill ends it with SIGKILL.
func (r *Redis) Kill() {
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(syscall.SIGKILL)
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// Client returns a client that does not retry.
func (r *Redis) Client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1, Protocol: 2, DisableIdentity: true})
}
