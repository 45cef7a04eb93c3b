package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/testkit"
)

// serviceManager is the socket of a service manager, as systemd's.
type serviceManager struct {
	*testing.T

	address string

	mu    sync.Mutex
	lines []string
}

func newServiceManager(t *testing.T) *serviceManager {
	t.Helper()
	m := &serviceManager{T: t, address: filepath.Join(t.TempDir(), "notify")}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.address, Net: "unixgram"})
	testkit.NoError(t, err)
	var reader sync.WaitGroup
	reader.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.lines = append(m.lines, strings.Split(string(buf[:n]), "\n")...)
			m.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		reader.Wait()
	})
	return m
}

// env are the variables of a service with a watchdog of three seconds.
func (m *serviceManager) env() []string {
	return []string{"NOTIFY_SOCKET=" + m.address, "WATCHDOG_USEC=3000000"}
}

// count returns how often a line was received.
func (m *serviceManager) count(line string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.lines {
		if l == line {
			n++
		}
	}
	return n
}

// await waits until a line was received n times.
func (m *serviceManager) await(line string, n int) {
	m.Helper()
	testkit.AwaitNil(m, fmt.Sprintf("%s is reported %d times", line, n), time.Minute, func() error {
		if m.count(line) < n {
			m.mu.Lock()
			defer m.mu.Unlock()
			return fmt.Errorf("the last lines are %q", m.lines[max(0, len(m.lines)-10):])
		}
		return nil
	})
}

const pinged = "WATCHDOG=1"

// freeze stops a process, and checks that its watchdog is not served.
func (m *serviceManager) freeze(p *mustertest.Process) {
	m.Helper()
	m.await(pinged, m.count(pinged)+2)
	p.Signal(syscall.SIGSTOP)
	before := m.count(pinged)
	time.Sleep(2 * time.Second) // twice the time between two pings
	if n := m.count(pinged); n > before+1 {
		m.Errorf("a process that hangs served its watchdog %d times", n-before)
	}
	p.Signal(syscall.SIGCONT)
	m.await(pinged, before+2)
}

// TestServiceNotifications checks what server and worker report to systemd, over an upgrade in place and until they have stopped, and that
// a task cannot report in the worker's name.
func TestServiceNotifications(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		m := newServiceManager(t)
		addr := mustertest.ReservePort(t)
		p := mustertest.StartMuster(t, "server", m.env(), "server", "--listen", addr, "--data", t.TempDir())
		m.await("READY=1", 1)
		if conn, err := net.Dial("tcp", addr); err != nil {
			t.Errorf("a server that is ready cannot be reached: %v", err)
		} else {
			_ = conn.Close()
		}
		m.await("STATUS=serving http://"+addr, 1)
		m.freeze(p)
		p.Signal(syscall.SIGTERM)
		m.await("STOPPING=1", 1)
		if code := p.WaitExit(time.Minute); code != 0 {
			t.Errorf("it exits with %d", code)
		}
	})
	t.Run("worker", func(t *testing.T) {
		t.Parallel()
		m := newServiceManager(t)
		p := c.LaunchWorkerWith(m.env(), mustertest.Program(t), "w1", t.TempDir())
		m.await("READY=1", 1)
		m.await("STATUS=connected to http://"+c.Addr+", 0 tasks running", 1)
		m.freeze(p)
		job := c.Submit(mustertest.ShellSpec("env", "env; sleep 3"))
		m.await("STATUS=connected to http://"+c.Addr+", 1 task running", 1)
		c.Wait(job.ID, time.Minute)
		if out := c.Output(c.Tasks(job.ID)[0].ID); strings.Contains(out, "NOTIFY_SOCKET") || strings.Contains(out, "WATCHDOG_") || !strings.Contains(out, "MUSTER_") {
			t.Errorf("the variables of a task are %s", out)
		}
		p.Signal(syscall.SIGUSR2)
		m.await("READY=1", 2)
		m.await("STATUS=connected to http://"+c.Addr+", 0 tasks running", 2)
		p.Signal(syscall.SIGTERM)
		m.await("STOPPING=1", 1)
		if code := p.WaitExit(time.Minute); code != 0 {
			t.Errorf("it exits with %d", code)
		}
	})
	t.Run("worker without a server", func(t *testing.T) {
		t.Parallel()
		m := newServiceManager(t)
		p := mustertest.StartMuster(t, "worker", append(m.env(), "MUSTER_JOIN_TOKEN="+mustertest.JoinToken), "worker", "--server", "http://127.0.0.1:9", "--data", t.TempDir())
		m.await("READY=1", 1) // a machine boots without it
		m.await("STATUS=connecting to http://127.0.0.1:9", 1)
		m.await(pinged, 5)
		p.Signal(syscall.SIGTERM)
		p.WaitExit(time.Minute)
	})
}

// TestServiceRestartKeepsTasks has a worker as the service of a unit, and a systemctl that says which job of the unit systemd executes: a
// restart leaves the tasks to the next process, a stop drains.
func TestServiceRestartKeepsTasks(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	dir, bin, shared := t.TempDir(), t.TempDir(), mustertest.SharedDir(t)
	manager := func(jobType string) {
		t.Helper()
		script := fmt.Sprintf("#!/bin/sh\necho ' 117 w.service %s running'\n", jobType)
		testkit.NoError(t, errors.Join(os.WriteFile(filepath.Join(bin, "new"), []byte(script), 0o700), os.Rename(filepath.Join(bin, "new"), filepath.Join(bin, "systemctl"))))
	}
	launch := func() (*mustertest.Process, *serviceManager) {
		m := newServiceManager(t)
		env := append(m.env(), "MUSTER_SYSTEMD_UNIT=w.service", "PATH="+bin+":"+os.Getenv("PATH"))
		p := c.LaunchWorkerWith(env, mustertest.Program(t), "w1", dir, "--allow-write", shared, "--shutdown-grace", "1s")
		m.await("STATUS=connected to http://"+c.Addr+", 1 task running", 1)
		return p, m
	}
	releaseFile := filepath.Join(shared, "gate")
	job := c.Submit(mustertest.ShellSpec("long", numberedLinesScript(releaseFile)))
	manager("restart")
	p, m := launch()
	var first int
	c.Await("the task has a process", time.Minute, func() error {
		pids := mustertest.TaskPIDs(t, dir)
		if len(pids) == 0 {
			return errors.New("it has none")
		}
		first = pids[0] // the others are its children, which change
		return nil
	})
	for range 2 {
		p.Signal(syscall.SIGTERM)
		if code := p.WaitExit(time.Minute); code != 0 {
			t.Errorf("it exits with %d", code)
		}
		if m.count("STOPPING=1") != 1 {
			t.Error("it does not report that it stops")
		}
		if got := mustertest.TaskPIDs(t, dir); !slices.Contains(got, first) {
			t.Errorf("the process of the task was %d, and they are %v", first, got)
		}
		p, m = launch()
	}
	touch(t, releaseFile)
	waitSucceeded(t, c, job.ID)
	if task := c.Tasks(job.ID)[0]; task.Attempt != 1 {
		t.Errorf("the task ends with attempt %d", task.Attempt)
	}
	checkNumberedOutput(t, c, muster.TaskID{Job: job.ID})

	manager("stop")
	job = c.Submit(mustertest.ShellSpec("longer", "sleep 1000"))
	c.AwaitRunning(job.ID, 1)
	p.Signal(syscall.SIGTERM)
	if code := p.WaitExit(time.Minute); code != 0 {
		t.Errorf("it exits with %d", code)
	}
	c.AwaitWorkerState("w1", muster.WorkerGone)
	awaitNoTasks(t, c, dir)
}
