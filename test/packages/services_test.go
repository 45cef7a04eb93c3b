package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/testkit"
)

// TestServices checks the services of a package while a task runs.
func TestServices(t *testing.T) {
	m := newMachine(t)
	m.call(debian.install, m.pkg("0.0.1", "deb"))
	m.startServices()
	t.Run("restarts", func(t *testing.T) { machine{t}.testRestarts() })
	t.Run("watchdog", func(t *testing.T) { machine{t}.testWatchdog() })
	t.Run("isolation", func(t *testing.T) { machine{t}.testIsolation() })
	t.Run("stop", func(t *testing.T) { machine{t}.testStop() })
}

// testRestarts checks that a running task is not affected when a service is restarted, killed or reloaded, and that tasks which start
// afterwards have limits, too.
func (m machine) testRestarts() {
	running := m.startTask()
	for _, c := range []struct {
		command []string
		unit    string
	}{
		{[]string{"restart"}, "muster-worker"},
		{[]string{"kill", "--kill-who=main", "--signal=KILL"}, "muster-worker"},
		{[]string{"reload"}, "muster-worker"},
		{[]string{"restart"}, "muster-server"},
		{[]string{"kill", "--signal=KILL"}, "muster-server"},
	} {
		pid, starts := m.mainPID(c.unit), m.starts(c.unit)
		m.call(append([]string{"systemctl"}, c.command...), c.unit)
		m.await(c.unit+" runs after "+c.command[0], func() error {
			if state, n := strings.TrimSpace(m.output("systemctl", "is-active", c.unit)), m.starts(c.unit); state != "active" || n != starts+1 {
				return fmt.Errorf("it is %s, and was started %d times after %d", state, n, starts)
			}
			return nil
		})
		if same := m.mainPID(c.unit) == pid; same != (c.command[0] == "reload") {
			m.Errorf("after %v the process of %s is %d, and was %d", c.command, c.unit, m.mainPID(c.unit), pid)
		}
		m.awaitWorker("0.0.1")
		running.expectSame()
		m.startTask().release()
	}
	running.release()
}

// starts counts how often the program of a service was started, according to its log.
func (m machine) starts(unit string) int {
	message := map[string]string{"muster-server": "msg=serving", "muster-worker": "msg=connected"}[unit]
	return strings.Count(m.output("journalctl", "--no-pager", "--output=cat", "--unit="+unit), message)
}

// testWatchdog checks that systemd restarts a server and a worker that hang, and that a running task is not affected.
func (m machine) testWatchdog() {
	for _, unit := range []string{"muster-server", "muster-worker"} {
		dir := "/etc/systemd/system/" + unit + ".service.d"
		testkit.NoError(m, os.MkdirAll(dir, 0o755))
		testkit.NoError(m, os.WriteFile(dir+"/watchdog.conf", []byte("[Service]\nWatchdogSec=6\nTimeoutAbortSec=1\n"), 0o600))
	}
	m.run("systemctl", "daemon-reload")
	m.run("systemctl", "restart", "muster-server", "muster-worker")
	m.awaitWorker("0.0.1")
	running := m.startTask()
	for _, unit := range []string{"muster-server", "muster-worker"} {
		pid := m.mainPID(unit)
		testkit.NoError(m, syscall.Kill(pid, syscall.SIGSTOP))
		m.await(unit+" is restarted", func() error {
			if now := m.mainPID(unit); now == pid || now == 0 {
				return fmt.Errorf("its process is %d, and was %d", now, pid)
			}
			return nil
		})
		if log := m.output("journalctl", "--no-pager", "--unit="+unit); !strings.Contains(log, "Watchdog timeout") {
			m.Errorf("%s was not restarted by the watchdog", unit)
		}
		m.awaitWorker("0.0.1")
		running.expectSame()
	}
	running.release()
}

// testIsolation checks that the settings of the unit make no difference for tasks: those of a worker that root starts in a terminal
// have the same rights and see the same.
func (m machine) testIsolation() {
	dir := filepath.Join("/var/lib", "bare")
	m.Cleanup(func() { testkit.NoError(m, os.RemoveAll(dir)) })
	mustertest.StartProgram(m, program, "bare", []string{"MUSTER_JOIN_TOKEN=" + m.read("/etc/muster/join-token")}, "worker", "--server", serverURL, "--name", "bare", "--data", dir)
	output := func(worker string) string {
		m.await(worker+" is connected", func() error {
			w, err := m.client().Worker(m.Context(), worker)
			if err == nil && w.State != muster.WorkerActive {
				err = fmt.Errorf("it is %s", w.State)
			}
			return err
		})
		spec := muster.TaskSpec{Kind: muster.KindProcess, Where: muster.Where{Workers: []string{worker}}, Run: &muster.Command{Shell: `umask; id -G | wc -w; grep -E "^(CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs|Seccomp):" /proc/self/status; ulimit -a; ls -C /dev /etc /var /tmp | sort
			for path in /usr /etc /var/lib /root /tmp . /etc/muster/join-token /var/lib/muster/server /dev/kmsg /sys/fs/cgroup; do test -w $path && echo "$path is writable"; test -r $path && echo "$path is readable"; done; true`}}
		job, err := m.client().Submit(m.Context(), &muster.Spec{Name: "rights", Tasks: []muster.TaskSpec{spec}}, client.SubmitOptions{})
		testkit.NoError(m, err)
		if job, err = m.client().Wait(m.Context(), job.ID); err != nil || job.State != muster.JobSucceeded {
			m.Fatalf("job %d is %s (%v)", job.ID, job.State, err)
		}
		var text []byte
		for line, err := range m.client().Logs(m.Context(), muster.TaskID{Job: job.ID}, client.LogOptions{Stream: client.Stdout}) {
			testkit.NoError(m, err)
			text = append(text, line.Data...)
		}
		return string(text)
	}
	bare := output("bare")
	if service := output("lab"); service != bare {
		m.Errorf("a task of the service prints\n%s\none of a worker in a terminal prints\n%s", service, bare)
	}
	if strings.Contains(bare, "token is readable") {
		m.Errorf("a task can read the join token: %s", bare)
	}
}

// testStop checks that a stop drains the worker, that its task returns to the queue, and that uninstall removes what install made.
func (m machine) testStop() {
	m.setGrace()
	m.run("systemctl", "restart", "muster-worker")
	m.awaitWorker("0.0.1")
	stopped := m.startTask()
	m.run("systemctl", "stop", "muster-worker")
	m.expectUnit("muster-worker", "ActiveState=inactive", "Result=success")
	stopped.expectEnded()
	m.await("the task waits for a worker", func() error {
		got, err := m.client().Task(m.Context(), stopped.id)
		if err == nil && got.State != muster.Queued {
			err = fmt.Errorf("it is %s", got.State)
		}
		return err
	})
	m.run(program, "worker", "uninstall")
	m.expectUnit("muster-worker", "ActiveState=inactive", "UnitFileState=disabled", "LoadState=loaded")
	for _, path := range []string{"/etc/systemd/system/muster-worker.service.d/50-install.conf", "/etc/muster/worker-join-token"} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			m.Errorf("%s remains: %v", path, err)
		}
	}
}

// TestInstallWithoutPackage checks that worker install makes a service of a program that was copied to the machine, and that uninstall
// leaves only its data.
func TestInstallWithoutPackage(t *testing.T) {
	m := newMachine(t)
	c := mustertest.New(t, t.TempDir())
	const copied, unit = "/usr/local/bin/muster", "/etc/systemd/system/muster-worker.service"
	m.run("install", "-m", "755", mustertest.Program(t), copied)
	token := filepath.Join(t.TempDir(), "token")
	testkit.NoError(t, os.WriteFile(token, []byte(mustertest.JoinToken), 0o600))
	m.run(copied, "worker", "install", "--server", "http://"+c.Addr, "--token-file", token, "--name", "copied")
	c.AwaitWorkerState("copied", muster.WorkerActive)
	m.expectUnit("muster-worker", "ActiveState=active", "UnitFileState=enabled", "FragmentPath="+unit)
	job := c.Submit(mustertest.ShellSpec("works", "true"))
	if job = c.Wait(job.ID, time.Minute); job.State != muster.JobSucceeded {
		t.Errorf("the job is %s", job.State)
	}
	m.run(copied, "worker", "uninstall")
	for _, path := range []string{unit, unit + ".d", "/etc/muster/worker-join-token"} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s remains: %v", path, err)
		}
	}
	m.awaitNoProcess(copied)
	if _, err := os.Stat("/var/lib/muster/worker/identity.json"); err != nil {
		t.Errorf("the worker's data is lost: %v", err)
	}
}
