package containertest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster/internal/testkit"
)

// StartPodman starts the service of a Podman with folders of its own, which takes registries on loopback as they
// are and makes control groups itself, and returns its address. It ends with the test, with all that
// it has. Where there is no Podman, or this user may not start one, the test skips. by is a command that executes the arguments that follow, such as unshare --mount;
// empty for none.
func StartPodman(tb testing.TB, by ...string) string {
	tb.Helper()
	program, err := exec.LookPath("podman")
	if err != nil || os.Geteuid() != 0 || testing.Short() {
		tb.Skip("no Podman that this user may start with folders of its own, or -short: scripts/need podman installs it")
	}
	dir, err := os.MkdirTemp("/tmp", "mst-") //nolint:usetesting // tb.TempDir is too long for sockets
	testkit.NoError(tb, err)
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	registries, limits := filepath.Join(dir, "registries.conf"), filepath.Join(dir, "containers.conf")
	for path, text := range map[string]string{
		registries: "[[registry]]\nlocation = \"127.0.0.1\"\ninsecure = true\n",
		limits:     "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n", // which its own root may not raise everywhere
	} {
		testkit.NoError(tb, os.WriteFile(path, []byte(text), 0o600))
	}
	options := []string{
		"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--tmpdir", filepath.Join(dir, "tmp"),
		"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file",
	}
	// crun runs nothing where control groups are of both versions.
	if unified, _ := os.ReadFile("/sys/fs/cgroup/unified/cgroup.controllers"); len(bytes.TrimSpace(unified)) > 0 {
		if _, err := exec.LookPath("runc"); err != nil {
			tb.Skip("control groups are of both versions here, for which Podman needs runc")
		}
		options = append(options, "--runtime", "runc")
	}
	var out bytes.Buffer
	run := func(ctx context.Context, by []string, arguments ...string) *exec.Cmd {
		argv := slices.Concat(by, []string{program}, options, arguments)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
		cmd.Env = append(os.Environ(), "CONTAINERS_REGISTRIES_CONF="+registries, "CONTAINERS_CONF="+limits)
		return cmd
	}
	host := "unix://" + filepath.Join(dir, "sock")
	serviceCtx, stop := context.WithCancel(context.Background())
	service := run(serviceCtx, by, "system", "service", "--time=0", host)
	service.Cancel = func() error { return service.Process.Signal(os.Interrupt) }
	service.WaitDelay = 30 * time.Second
	if err := service.Start(); err != nil {
		stop()
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		remove := run(ctx, []string{"nsenter", "--mount", "--target", strconv.Itoa(service.Process.Pid)}, "rm", "--all", "--force", "--time=0", "--volumes")
		remove.Stdout, remove.Stderr = nil, nil
		text, err := remove.CombinedOutput()
		stop()
		_ = service.Wait() // it was asked to end
		if err != nil {
			tb.Errorf("its containers cannot be removed: %v: %s", err, text)
		}
	})
	api := API(tb, host)
	if err := testkit.Poll(tb.Context(), time.Minute, func() error {
		_, err := api.Ping(tb.Context(), client.PingOptions{})
		return err
	}); err != nil {
		tb.Fatalf("Podman's service does not answer: %v: %s", err, &out)
	}
	return host
}
