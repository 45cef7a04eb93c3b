//go:build unix

package containertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/testkit"
)

// Daemon is an engine of one test, which may stop, kill and freeze it. One goroutine uses it.
type Daemon struct {
	tb     testing.TB
	dir    string
	flags  []string
	bridge string
	pid    int           // of the dockerd that runs, or the last one
	done   chan struct{} // closed when that has ended
}

// StartDaemon starts a dockerd with additional flags, such as --live-restore, and waits until it is ready. It is removed after the
// test. If none can be started, and with -short, the test is skipped.
func StartDaemon(tb testing.TB, flags ...string) *Daemon {
	tb.Helper()
	switch _, err := exec.LookPath("dockerd"); {
	case testing.Short():
		tb.Skip("engines of their own are not for -short")
	case runtime.GOOS != "linux" || os.Getuid() != 0:
		tb.Skip("an engine of its own needs Linux and root")
	case err != nil:
		tb.Skip("there is no dockerd: scripts/need dockerd installs it")
	case os.Getenv("MUSTER_TEST_ENGINE") == "":
		tb.Skip("engines of their own are for tests that scripts/engine runs, which has found that they start here")
	}
	dir, err := os.MkdirTemp("/tmp", "mst-") //nolint:usetesting // tb.TempDir is too long for sockets
	testkit.NoError(tb, err)
	d := &Daemon{tb: tb, dir: dir, flags: flags}
	tb.Cleanup(d.cleanup)
	testkit.NoError(tb, os.Chmod(dir, 0o711)) //nolint:gosec // users to whom root is mapped come through it
	testkit.NoError(tb, os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600))
	d.addBridge()
	d.Restart()
	return d
}

// addBridge creates a bridge for the daemon, as scripts/engine does: otherwise it would use or, with --bridge=none, remove the
// bridge of the machine's own engine.
func (d *Daemon) addBridge() {
	for n := range 256 {
		subnet := fmt.Sprintf("10.198.%d", n)
		if out, err := exec.CommandContext(d.tb.Context(), "ip", "-4", "route", "show", "root", subnet+".0/24").Output(); err != nil || len(out) > 0 {
			continue
		}
		name := "msd" + strconv.Itoa(n)
		if exec.CommandContext(d.tb.Context(), "ip", "link", "add", name, "type", "bridge").Run() != nil {
			continue // another test has it
		}
		d.bridge = name
		for _, args := range [][]string{{"addr", "add", subnet + ".1/24", "dev", name}, {"link", "set", name, "up"}} {
			if out, err := exec.CommandContext(d.tb.Context(), "ip", args...).CombinedOutput(); err != nil {
				d.tb.Fatalf("ip %q: %v: %s", args, err, out)
			}
		}
		return
	}
	d.tb.Fatal("no network bridge can be made for an engine of its own")
}

// Host returns the daemon's address, which does not change.
func (d *Daemon) Host() string { return "unix://" + filepath.Join(d.dir, "sock") }

// Restart starts the daemon after Stop or Kill, with its data.
func (d *Daemon) Restart() {
	d.tb.Helper()
	testkit.NoError(d.tb, d.launch(d.tb.Context()))
}

func (d *Daemon) launch(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	path := func(name string) string { return filepath.Join(d.dir, name) }
	args := []string{
		"dockerd", "--data-root", path("data"), "--exec-root", path("run"), "--pidfile", path("pid"), "--config-file", path("config.json"),
		"-H", d.Host(), "--containerd-namespace", filepath.Base(d.dir), "--containerd-plugins-namespace", filepath.Base(d.dir) + "-plugins",
		"--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--bridge", d.bridge,
	}
	if _, err := exec.LookPath("setpriv"); err == nil {
		args = append([]string{"setpriv", "--pdeathsig", "TERM"}, args...) // it ends with a test that panics
	}
	cmd := exec.Command(args[0], append(args[1:], d.flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started, done := make(chan error), make(chan struct{})
	go func() {
		defer close(done)
		defer log.Close()
		runtime.LockOSThread() // the signal comes at the end of the thread that started it
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	d.pid, d.done = cmd.Process.Pid, done
	return d.awaitReady(ctx)
}

// awaitReady waits until the daemon answers.
func (d *Daemon) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	api, err := client.New(client.WithHost(d.Host()))
	if err != nil {
		return err
	}
	defer api.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err = api.Ping(ctx, client.PingOptions{}); err == nil {
			return nil
		}
		select {
		case <-d.done:
			return fmt.Errorf("dockerd ended:\n%s", d.log())
		case <-ctx.Done():
			return fmt.Errorf("dockerd does not answer: %w\n%s", err, d.log())
		case <-tick.C:
		}
	}
}

func (d *Daemon) log() []byte {
	b, err := os.ReadFile(filepath.Join(d.dir, "log"))
	if err != nil {
		return []byte(err.Error())
	}
	return b[max(0, len(b)-6000):]
}

// Stop stops the daemon with SIGTERM and waits for its end. Its containers end with it, unless it runs with --live-restore.
func (d *Daemon) Stop() {
	d.tb.Helper()
	if !d.terminate(time.Minute) {
		d.tb.Fatalf("dockerd does not end:\n%s", d.log())
	}
}

func (d *Daemon) terminate(limit time.Duration) bool {
	_ = syscall.Kill(d.pid, syscall.SIGTERM) // it may have ended
	select {
	case <-d.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// Kill kills the daemon and its containerd with SIGKILL; its containers continue.
func (d *Daemon) Kill() {
	_ = syscall.Kill(d.pid, syscall.SIGKILL) // it may have ended
	<-d.done
	// The next dockerd would wait for the old containerd until that is reaped.
	_ = os.Remove(filepath.Join(d.dir, "run", "containerd", "containerd.pid"))
}

// SetFrozen suspends the daemon, so that it accepts connections and does not answer, or resumes it.
func (d *Daemon) SetFrozen(on bool) {
	d.tb.Helper()
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	testkit.NoError(d.tb, syscall.Kill(d.pid, sig))
	testkit.Await(d.tb, "dockerd's reaction to "+sig.String(), func() bool { return d.frozen() == on })
}

// frozen reports whether all threads of the daemon are suspended: a signal does not reach all at the same time.
func (d *Daemon) frozen() bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", d.pid)) // the pattern is a good one
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if _, state, ok := bytes.Cut(b, []byte(") ")); err == nil && ok && state[0] != 'T' {
			return false
		}
	}
	return len(stats) > 0
}

// cleanup removes the daemon, its containers and its files.
func (d *Daemon) cleanup() {
	if d.tb.Failed() {
		d.tb.Logf("log of dockerd:\n%s", d.log())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	if d.done != nil {
		_ = syscall.Kill(d.pid, syscall.SIGCONT)
		select {
		case <-d.done:
			_ = d.launch(ctx) // it knows what it has left
		default:
		}
		d.removeContainers(ctx)
		if !d.terminate(time.Minute) {
			d.Kill()
		}
	}
	// Remaining processes, containerd and the shims of containers, write into the folder until they end.
	for deadline := time.Now().Add(30 * time.Second); d.killLeftovers() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	d.unmount(ctx)
	if d.bridge != "" {
		if out, err := exec.CommandContext(ctx, "ip", "link", "del", d.bridge).CombinedOutput(); err != nil {
			d.tb.Errorf("the bridge of the engine stays: %v: %s", err, out)
		}
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.tb.Errorf("the folder of the engine stays: %v", err)
	}
}

// killLeftovers kills the processes that work in the daemon's folder, and reports whether there were any.
func (d *Daemon) killLeftovers() bool {
	pids := slices.DeleteFunc(mustertest.ProcessesMatching(d.tb, d.dir+"/"), func(pid int) bool { return pid == os.Getpid() })
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may just have ended
	}
	return len(pids) > 0
}

// removeContainers removes all containers.
func (d *Daemon) removeContainers(ctx context.Context) {
	api, err := client.New(client.WithHost(d.Host()))
	if err != nil {
		return
	}
	defer api.Close()
	all, err := api.ContainerList(ctx, client.ContainerListOptions{All: true})
	for _, c := range all.Items {
		_, removeErr := api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		err = errors.Join(err, removeErr)
	}
	if err != nil {
		d.tb.Logf("the engine's containers: %v", err)
	}
}

// unmount unmounts everything below the daemon's folder, the innermost mounts first.
func (d *Daemon) unmount(ctx context.Context) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	var mounts []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], d.dir+"/") {
			mounts = append(mounts, f[4])
		}
	}
	slices.Sort(mounts)
	slices.Reverse(mounts)
	for _, dir := range mounts {
		_ = exec.CommandContext(ctx, "umount", "-l", dir).Run() // RemoveAll says what stays
	}
}
