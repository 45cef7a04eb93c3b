package packages

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/testkit"
)

// newMachineWithoutPackage returns a machine with the program alone, and a server.
func newMachineWithoutPackage(t *testing.T) machine {
	t.Helper()
	m := newMachine(t)
	const binary = "/usr/local/bin/muster"
	m.run("install", "-D", "/src/muster", binary)
	t.Cleanup(func() { _ = os.Remove(binary) })
	testkit.NoError(t, os.MkdirAll("/etc/muster", 0o755))
	for file, token := range map[string]string{"/etc/muster/admin-token": "an-admin-token-0123456789", "/etc/muster/join-token": "a-join-token-0123456789"} {
		testkit.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o644))
	}
	server := exec.Command(binary, "server", "--data", t.TempDir(), "--admin-token-file", "/etc/muster/admin-token", "--join-token-file", "/etc/muster/join-token")
	server.Env = append(os.Environ(), "MUSTER_CONFIG="+t.TempDir()+"/context.json")
	testkit.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	m.await("the server answers", func() error {
		_, err := m.client().Whoami(m.Context())
		return err
	})
	return m
}

// TestInstallAgain makes a machine a worker with one command, again while a task runs, which does not notice, and undoes it.
func TestInstallAgain(t *testing.T) {
	m := newMachineWithoutPackage(t)
	install := []string{"muster", "worker", "install", "--server", serverURL, "--token-file", "/etc/muster/join-token", "--shutdown-grace", "2s", "--name", "lab"}
	const label = `it's "here": 50% of $HOME`
	if out := m.call(install, "--label", "note="+label); !strings.Contains(out, "for the server "+serverURL) {
		m.Errorf("it prints %s", out)
	}
	w, err := m.client().Worker(m.Context(), "lab")
	testkit.NoError(t, err)
	if w.State != muster.WorkerActive || w.Labels["note"] != label {
		m.Errorf("the worker is %+v", w)
	}
	m.expectUnit("muster-worker", "ActiveState=active", "UnitFileState=enabled", "NRestarts=0")
	m.expectFile("/etc/muster/worker-join-token", "600 root:root")
	running := m.startTask()
	m.call(install, "--tags", "changed")
	running.expectSame()
	if w, err := m.client().Worker(m.Context(), "lab"); err != nil || !strings.Contains(strings.Join(w.Tags, " "), "changed") {
		m.Errorf("the worker is %+v (%v)", w, err)
	}

	// /etc is read-only for the service.
	if out := m.output("sh", "-c", strings.Join(install, " ")+" --data /etc/muster/no; echo ends with $?"); !strings.Contains(out, "ends with 7") || !strings.Contains(out, "/etc/muster/no") {
		m.Errorf("with a worker that cannot start it prints %s", out)
	}
	running.expectSame()
	m.call(install)
	m.run("muster", "worker", "uninstall")
	m.expectUnit("muster-worker", "ActiveState=inactive", "LoadState=not-found")
	if err := syscall.Kill(running.pid, 0); err == nil {
		m.Errorf("the task's process %d remains", running.pid)
	}
	if out := m.output("find", "/etc", "-name", "muster-worker*", "-o", "-name", "worker-join-token"); out != "" {
		m.Errorf("it leaves %s", out)
	}
	if _, err := os.Stat("/var/lib/muster/worker/identity.json"); err != nil {
		m.Errorf("the worker's data: %v", err)
	}
}

// TestInstallForAUser makes an ordinary user's worker a service of the user's manager, which restarts it while a task runs.
func TestInstallForAUser(t *testing.T) {
	m := newMachineWithoutPackage(t)
	m.run("useradd", "--create-home", "ada")
	t.Cleanup(func() {
		m.output("sh", "-c", "loginctl disable-linger ada; loginctl terminate-user ada; sleep 1; userdel --remove ada")
	})
	m.run("loginctl", "enable-linger", "ada")
	uid := strings.TrimSpace(m.run("id", "-u", "ada"))
	m.await("the manager of the user runs", func() error {
		_, err := os.Stat("/run/user/" + uid + "/systemd/private")
		return err
	})
	ada := func(command string) string {
		t.Helper()
		return m.run("setpriv", "--reuid=ada", "--regid=ada", "--init-groups", "env", "HOME=/home/ada", "XDG_RUNTIME_DIR=/run/user/"+uid, "sh", "-c", "cd; "+command)
	}
	if out := ada("muster worker install --user --server " + serverURL + " --token-file /etc/muster/join-token --name lab"); strings.Contains(out, "when you log out") {
		m.Errorf("it prints %s", out)
	}
	running := m.startTask()
	if want := "/sys/fs/cgroup/user.slice/user-" + uid + ".slice/user@" + uid + ".service/muster-"; !strings.HasPrefix(running.group, want) {
		m.Errorf("the task's group is %s", running.group)
	}
	ada("systemctl --user restart muster-worker")
	m.await("the worker is connected", func() error {
		if out := ada("systemctl --user show -p StatusText muster-worker"); !strings.Contains(out, "connected to "+serverURL+", 1 task running") {
			return fmt.Errorf("it is %s", out)
		}
		return nil
	})
	running.expectSame()
	running.release()
	ada("muster worker uninstall --user")
	if out := ada("find ~/.config"); strings.Contains(out, "muster") {
		m.Errorf("it leaves %s", out)
	}
}
