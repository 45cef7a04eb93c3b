package packages

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/testkit"
)

// format is a format of packages, with the commands of its manager.
type format struct {
	name                     string
	install, upgrade, remove []string
}

var (
	debian = format{"deb", []string{"dpkg", "--install"}, []string{"dpkg", "--install"}, []string{"dpkg", "--remove", "muster"}}
	// Debian's rpm knows nothing of the packages that dpkg has installed.
	rpm = format{"rpm", []string{"rpm", "--install", "--nodeps"}, []string{"rpm", "--upgrade", "--nodeps"}, []string{"rpm", "--erase", "muster"}}
)

// call calls the command of a package manager.
func (m machine) call(command []string, args ...string) string {
	m.Helper()
	return m.run(command[0], append(command[1:], args...)...)
}

// startServices starts a server, and a worker as an administrator installs it.
func (m machine) startServices() {
	m.Helper()
	m.run("systemctl", "enable", "--now", "muster-server")
	m.expectReady()
	output := m.run(program, "worker", "install", "--server", serverURL, "--token-file", "/etc/muster/join-token", "--name", "lab")
	m.awaitWorker("0.0.1")
	m.expectUnit("muster-worker", "ActiveState=active", "UnitFileState=enabled", "Type=notify")
	if !strings.Contains(output, "journalctl -u muster-worker") {
		m.Errorf("worker install prints %s", output)
	}
}

// setGrace changes the settings of the worker: its tasks have seconds to end.
func (m machine) setGrace() {
	m.Helper()
	f, err := os.OpenFile("/etc/muster/worker.env", os.O_APPEND|os.O_WRONLY, 0)
	testkit.NoError(m, err)
	_, err = f.WriteString(grace)
	testkit.NoError(m, err)
	testkit.NoError(m, f.Close())
}

const grace = "MUSTER_SHUTDOWN_GRACE=2s\n"

// TestDebianPackage and TestRPMPackage check what a package installs, that its services start, that an upgrade restarts them while a
// task runs, and that a removal stops them and keeps their data.
func TestDebianPackage(t *testing.T) {
	m := newMachine(t)
	job := m.testLife(debian)

	// A new installation continues with the data and the tokens: the task that was stopped runs again.
	token := m.read("/etc/muster/admin-token")
	m.call(debian.install, m.pkg("0.0.2", "deb"))
	if m.read("/etc/muster/admin-token") != token {
		t.Error("the tokens of a removed package are replaced")
	}
	m.run("systemctl", "enable", "--now", "muster-server")
	if got, err := m.client().Job(t.Context(), job); err != nil || got.State.Final() {
		t.Errorf("the job that was running at the removal is %s (%v)", got.State, err)
	}
	m.run("dpkg", "--purge", "muster")
	for _, path := range []string{"/etc/muster", "/etc/systemd/system/muster-worker.service.d"} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("a purge leaves %s: %v", path, err)
		}
	}
	m.expectData()
}

func TestRPMPackage(t *testing.T) {
	newMachine(t).testLife(rpm)
}

// testLife installs, starts, upgrades and removes a package, and returns a job whose task was running at the removal.
func (m machine) testLife(f format) muster.JobID {
	output := m.call(f.install, m.pkg("0.0.1", f.name))
	if !strings.Contains(output, "systemctl enable --now muster-server") {
		m.Errorf("the installation does not name the next commands: %s", output)
	}
	m.expectInstalled()

	m.startServices()
	m.expectUnit("muster-server", "ActiveState=active", "Type=notify", "User=muster")
	m.expectFile(fmt.Sprintf("/proc/%d", m.mainPID("muster-server")), "555 muster:muster")
	m.expectFile("/var/lib/muster/server", "700 muster:muster")
	m.run(program, "login", serverURL, "--token-file", "/etc/muster/admin-token")
	running := m.startTask()
	if out := m.run(program, "ps"); !strings.Contains(out, "running") {
		m.Errorf("muster ps: %s", out)
	}
	m.setGrace()

	output = m.call(f.upgrade, m.pkg("0.0.2", f.name))
	if strings.Contains(output, "was started yet") || strings.Contains(output, "does not start") {
		m.Errorf("the upgrade prints %s", output)
	}
	m.expectReady()
	who, err := m.client().Whoami(m.Context())
	testkit.NoError(m, err)
	if who.Version != "0.0.2" {
		m.Errorf("after the upgrade the server is version %s", who.Version)
	}
	m.awaitWorker("0.0.2")
	m.expectUnit("muster-server", "ActiveState=active", "UnitFileState=enabled", "NRestarts=0")
	m.expectUnit("muster-worker", "ActiveState=active", "UnitFileState=enabled", "NRestarts=0")
	running.expectSame()
	if !strings.HasSuffix(m.read("/etc/muster/worker.env")+"\n", "\n"+grace) {
		m.Error("the upgrade replaces changed settings")
	}
	m.startTask().release()
	running.release()
	journal := m.output("journalctl", "--no-pager")
	for _, name := range []string{"admin-token", "join-token"} {
		if strings.Contains(journal, m.read("/etc/muster/"+name)) {
			m.Errorf("the journal has the %s", name)
		}
	}

	last := m.startTask()
	m.call(f.remove)
	for _, unit := range []string{"muster-server", "muster-worker"} {
		m.expectUnit(unit, "ActiveState=inactive")
		if out := m.output("systemctl", "is-enabled", unit); strings.Contains(out, "enabled") {
			m.Errorf("%s: %s", unit, out)
		}
	}
	last.expectEnded()
	m.awaitNoProcess(program)
	if _, err := os.Stat(program); !os.IsNotExist(err) {
		m.Errorf("%s remains: %v", program, err)
	}
	m.expectData()
	return last.job
}

// expectInstalled checks what a first installation makes.
func (m machine) expectInstalled() {
	m.Helper()
	if out := m.run(program, "version"); !strings.Contains(out, "0.0.1") {
		m.Errorf("muster version: %s", out)
	}
	for _, unit := range []string{"muster-server", "muster-worker"} {
		m.expectUnit(unit, "LoadState=loaded", "ActiveState=inactive", "UnitFileState=disabled")
	}
	for path, want := range map[string]string{
		program: "755 root:root", "/etc/muster": "755 root:root", "/etc/muster/server.env": "640 root:root", "/etc/muster/worker.env": "640 root:root",
		"/etc/muster/admin-token": "640 root:muster", "/etc/muster/join-token": "640 root:muster",
		"/usr/share/bash-completion/completions/muster": "644 root:root", "/usr/share/fish/vendor_completions.d/muster.fish": "644 root:root",
		"/usr/lib/systemd/user/muster-worker.service": "644 root:root",
	} {
		m.expectFile(path, want)
	}
	admin, join := m.read("/etc/muster/admin-token"), m.read("/etc/muster/join-token")
	for _, token := range []string{admin, join} {
		if err := auth.CheckToken(token); err != nil || len(token) != 48 {
			m.Errorf("a token of %d characters: %v", len(token), err)
		}
	}
	if admin == join {
		m.Error("both tokens are the same")
	}
	m.run("/usr/share/muster/postinstall.sh")
	if m.read("/etc/muster/admin-token") != admin || m.read("/etc/muster/join-token") != join {
		m.Error("the tokens change when the script of the package runs again")
	}
	m.run("systemd-analyze", "verify", "--man=no", "muster-server.service", "muster-worker.service")
	m.run("systemd-analyze", "security", "--threshold=20", "muster-server.service")
	if user := m.run("getent", "passwd", "muster"); !strings.Contains(user, ":/var/lib/muster:/usr/sbin/nologin") {
		m.Errorf("user %s", user)
	}
}

// expectData checks that the data of server and worker is kept.
func (m machine) expectData() {
	m.Helper()
	for _, path := range []string{"/var/lib/muster/server/muster.db", "/var/lib/muster/worker/identity.json"} {
		if _, err := os.Stat(path); err != nil {
			m.Errorf("data is lost: %v", err)
		}
	}
}
