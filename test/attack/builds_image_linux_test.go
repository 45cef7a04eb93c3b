package attack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// hostileUVInImage is a uv whose packages have a build hook that looks for the worker's variables, and for what other builds have left, in a container.
const hostileUVInImage = `#!/bin/sh
case "$*" in
*venv*)
	for dir; do :; done
	mkdir -p $dir/bin $dir/lib/python3.0/site-packages
	ln -s /bin/busybox $dir/bin/python ;;
*pip*)
	[ -e $UV_CACHE_DIR/package ] && echo BROKEN: sees the cache of another >>$UV_CACHE_DIR/package
	exec >>$UV_CACHE_DIR/package
	echo "hook with $(ls /muster)"
	env | grep -i -e MUSTER_ -e secret -e token && echo BROKEN: sees variables of the worker
	echo evil 2>/dev/null >>/muster/uv && echo BROKEN: changes the worker\'s uv ;;
esac
exit 0
`

// TestBuildsInImagesAreSeparate states that code of a package which is built in a container sees neither the worker's variables nor the cache of
// another project or image, and that a task cannot change the environment that it shares with others.
func TestBuildsInImagesAreSeparate(t *testing.T) {
	t.Parallel()
	host := containertest.SharedEngine(t)
	another := containertest.ShellImage(t)
	another.Folders = append(another.Folders, "/another")
	images := []string{containertest.LoadBusybox(t, host), containertest.LoadImage(t, host, "muster-test/another:1", another)}
	uv := filepath.Join(mustertest.SharedDir(t), "uv")
	if err := os.WriteFile(uv, []byte(hostileUVInImage), 0o755); err != nil {
		t.Fatal(err)
	}
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	c.LaunchWorkerWith([]string{"MUSTER_UV=" + uv, "AWS_SECRET_ACCESS_KEY=x"}, mustertest.Program(t), "w1", dir, "--engine", host)
	c.AwaitWorkerState("w1", muster.WorkerActive)
	for i, project := range []string{"alpha", "beta", "alpha"} {
		spec := &muster.Spec{Name: "build", Project: project, Tasks: []muster.TaskSpec{{
			Kind: muster.KindScript, Image: images[i/2], Isolation: muster.IsolationContainer, Python: &muster.Python{Packages: []string{"evil"}},
			Script: &muster.Script{Text: "echo env $VIRTUAL_ENV; echo x 2>/dev/null >/muster/python/x && echo BROKEN"},
		}}}
		job := c.Submit(spec)
		c.Wait(job.ID, 2*time.Minute)
		if out := c.Output(muster.TaskID{Job: job.ID}); out != "env /muster/python\n" {
			t.Fatalf("the task printed %q: %s", out, c.Tasks(job.ID)[0].Message)
		}
	}
	caches, err := filepath.Glob(filepath.Join(dir, "cache", "uv-projects", "*", "package"))
	if err != nil || len(caches) != 3 {
		t.Errorf("the caches of three builds are %v %v", caches, err)
	}
	for _, path := range caches {
		if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "BROKEN") || !strings.HasPrefix(string(text), "hook with ") {
			t.Errorf("a hook says %q %v", text, err)
		}
	}
}
