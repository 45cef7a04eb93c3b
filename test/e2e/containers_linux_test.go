package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// containerEnv is a server, and a worker to be, with an engine.
type containerEnv struct {
	*mustertest.Cluster
	t      *testing.T
	host   string // of the engine
	image  string // with a shell
	dir    string // of the worker
	before containertest.Resources
}

// newContainerEnv creates a server, and a folder for a worker with the engine at host. After the test, also a failed one, all of its
// containers are removed.
func newContainerEnv(t *testing.T, host string) *containerEnv {
	t.Helper()
	b := &containerEnv{Cluster: mustertest.New(t, t.TempDir()), t: t, host: host, image: containertest.LoadBusybox(t, host), dir: t.TempDir()}
	b.before = containertest.ListResources(t, host, b.dir)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		api, err := client.New(client.WithHost(host))
		if err != nil {
			return
		}
		defer api.Close()
		leftovers, err := api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", "dev.muster.data="+b.dir)})
		if err != nil {
			return // an engine of the test's own is gone, with all that it had
		}
		for _, c := range leftovers.Items {
			_, _ = api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}) // it may just end
		}
	})
	return b
}

// start starts the worker.
func (b *containerEnv) start(flags ...string) *mustertest.Process {
	b.t.Helper()
	return b.StartWorker("w1", b.dir, append([]string{"--engine", b.host}, flags...)...)
}

// shellSpec is a spec of a script in a container.
func (b *containerEnv) shellSpec(name, script string) *muster.Spec {
	s := mustertest.ShellSpec(name, script)
	s.Tasks[0].Image = b.image
	return s
}

// waitTask waits for the end of a job of one task, which it returns.
func (b *containerEnv) waitTask(id muster.JobID) muster.Task {
	b.t.Helper()
	b.Wait(id, 2*time.Minute)
	return b.Tasks(id)[0]
}

// waitForRelease is a part of a script that waits until open was called.
const waitForRelease = `while [ ! -e gate ]; do sleep 0.1; done; `

// release lets the tasks continue that wait at held.
func (b *containerEnv) release() {
	b.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(b.dir, "tasks", "*", "work"))
	if err != nil || len(dirs) == 0 {
		b.t.Fatalf("there are no folders of tasks (%v)", err)
	}
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "gate"), nil, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a task that has ended
			b.t.Fatal(err)
		}
	}
}

// awaitCleanup waits until the engine and the machine have no containers, networks, volumes, folders or control groups of the tasks.
func (b *containerEnv) awaitCleanup() {
	b.t.Helper()
	containertest.AwaitCleanup(b.t, b.host, b.dir, b.before)
	b.Await("folders and control groups of tasks are gone", time.Minute, func() error {
		entries, err := os.ReadDir(filepath.Join(b.dir, "tasks"))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") {
				err = errors.Join(err, fmt.Errorf("the folder %s exists", e.Name()))
			}
		}
		for _, l := range cgroup.WorkerGroups(b.dir) {
			if l.Own && (l.Groups > 0 || l.Processes > 0) {
				err = errors.Join(err, fmt.Errorf("%s has %d groups and %d processes", l.Path, l.Groups, l.Processes))
			}
		}
		mounts, readErr := os.ReadFile("/proc/self/mountinfo")
		if strings.Contains(string(mounts), b.dir) {
			err = errors.Join(err, errors.New("something of its folder is mounted"))
		}
		return errors.Join(err, readErr)
	})
}

// countScript is a script that prints that many numbered lines, one in a tenth of a second.
func countScript(lines string) string {
	return fmt.Sprintf(`i=0; while [ $i -lt %s ]; do i=$((i+1)); echo line $i; sleep 0.1; done; `, lines)
}

// killWorkerAndShims kills a worker and its shim.
func killWorkerAndShims(t *testing.T, w *mustertest.Process, dir string) {
	t.Helper()
	killPIDs(t, append(mustertest.ShimPIDs(t, dir), w.PID())...)
	<-w.Done()
}
