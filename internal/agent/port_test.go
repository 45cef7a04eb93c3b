//go:build unix

package agent

import (
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// freePort returns an unused TCP port outside the range of ephemeral ports.
func freePort(t *testing.T) int {
	t.Helper()
	for {
		port := 10_000 + rand.N(20_000)
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
}

// lead assigns the member of rank 0 of a gang with a port.
func (e *env) lead(num, port int) muster.AttemptID {
	e.server.send(&link.ToWorker{
		Specs: []link.GroupSpec{{Ref: num + 1, UID: "j1", Name: "g", Spec: muster.TaskSpec{Kind: "process"}}},
		Assign: []link.Assign{{
			Attempt: attemptID(num), Ref: num + 1, Grant: muster.Grant{Slots: 1}, Gang: &muster.Membership{Size: 2, Master: "127.0.0.1", Port: port},
		}},
	})
	synctest.Wait()
	return attemptID(num)
}

// TestGangPortIsReserved checks that the port of a gang is reserved from the assignment until its process starts, against other gangs and
// programs.
func TestGangPortIsReserved(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		port := freePort(t)
		listen := func() error {
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":"+strconv.Itoa(port))
			if err == nil {
				err = l.Close()
			}
			return err
		}
		e.lead(0, port)
		s := <-e.executor.started
		if listen() == nil {
			t.Error("another program got the port of a gang that has not started")
		}
		if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			conn.Close()
			t.Error("a connection before the master listens is not refused")
		}
		second := e.lead(1, port)
		if r := e.server.received().Rejected; len(r) != 1 || r[0].Attempt != second || !strings.Contains(r[0].Message, "is not free") {
			t.Errorf("rejected are %v, want %s", r, second)
		}
		s.task.ReleasePort() // its process starts
		if err := listen(); err != nil {
			t.Errorf("the port is not free for the gang itself: %v", err)
		}
		s.finish()
		e.lead(2, port)
		(<-e.executor.started).finish() // before it has a process
		time.Sleep(time.Second)
		if err := listen(); err != nil {
			t.Errorf("the port of an attempt that ended is not free: %v", err)
		}
	})
}

// TestGangPortWithClosingConnections has a port with recently closed connections: a gang may use it.
func TestGangPortWithClosingConnections(t *testing.T) {
	port := freePort(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	dialed, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{accepted, dialed, l} { // it waits on the side that closed first
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	held, err := bindPort(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
}
