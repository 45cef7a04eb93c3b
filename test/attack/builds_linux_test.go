package attack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// hostileUV is a uv whose packages have a build hook that changes what it finds: caches, environments and files of the worker.
const hostileUV = `#!/bin/sh
case "$*" in
--version) echo uv 1.0 ;;
python\ find*) echo /usr/bin/python3 ;;
*venv*)
	for dir; do :; done
	mkdir -p $dir/bin $dir/lib/python3.0/site-packages
	ln -s /usr/bin/python3 $dir/bin/python
	printf 'home = /usr/bin\n' >$dir/pyvenv.cfg ;;
*pip*)
	exec >$UV_CACHE_DIR/package
	echo "hook of user $(id -u) with the cache $UV_CACHE_DIR"
	env | grep -i -e token -e secret && echo BROKEN: sees a secret
	for other in $UV_CACHE_DIR/../* $UV_CACHE_DIR/../../uv ../../envs/[!.]*; do
		[ "$(readlink -f $other)" = "$(readlink -f $UV_CACHE_DIR)" ] && continue
		ls $other >/dev/null 2>&1 && echo BROKEN: reads $other
		echo evil >$other/evil 2>/dev/null && echo BROKEN: changes $other
	done ;;
esac
exit 0
`

// TestBuildsOfProjectsAreSeparate checks that the tasks of two projects that name the same packages have separate environments and caches, and that the code
// of a package which is built for one of them neither reads nor changes those of the other, nor sees the worker's variables.
func TestBuildsOfProjectsAreSeparate(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(python); err != nil {
		t.Skip("there is no " + python + " to build environments with")
	}
	uv := filepath.Join(mustertest.SharedDir(t), "uv")
	if err := os.WriteFile(uv, []byte(hostileUV), 0o755); err != nil {
		t.Fatal(err)
	}
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	c.LaunchWorkerWith([]string{"MUSTER_UV=" + uv, "AWS_SECRET_ACCESS_KEY=x"}, mustertest.Program(t), "w1", dir)
	c.AwaitWorkerState("w1", muster.WorkerActive)
	envs, logs := map[string]bool{}, ""
	for _, project := range []string{"alpha", "beta", "alpha"} {
		spec := &muster.Spec{Name: "build", Project: project, Tasks: []muster.TaskSpec{{
			Kind: muster.KindScript, Script: &muster.Script{Text: "echo env $VIRTUAL_ENV"}, Python: &muster.Python{Packages: []string{"evil"}},
		}}}
		job := c.Submit(spec)
		if got := c.Wait(job.ID, time.Minute); got.State != muster.JobSucceeded {
			t.Fatalf("the job ended as %s: %s\n%s", got.State, c.Tasks(job.ID)[0].Message, c.Output(muster.TaskID{Job: job.ID}))
		}
		out := c.Output(muster.TaskID{Job: job.ID})
		envs[project+" "+out] = true
	}
	caches, err := filepath.Glob(filepath.Join(dir, "cache", "uv-projects", "*", "package"))
	for _, path := range caches {
		text, e := os.ReadFile(path)
		if e != nil {
			t.Fatal(e)
		}
		logs += string(text) //nolint:perfsprint // of two files
	}
	if len(envs) != 2 || len(caches) != 2 || err != nil || strings.Count(logs, "hook of user") != 2 {
		t.Errorf("environments %v, caches %v %v, logs:\n%s", envs, caches, err, logs)
	}
	if strings.Contains(logs, "BROKEN") || os.Geteuid() == 0 && strings.Contains(logs, "hook of user 0 ") {
		t.Errorf("a hook broke out:\n%s", logs)
	}
}
