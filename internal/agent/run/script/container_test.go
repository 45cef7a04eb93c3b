//go:build linux

package script_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/container"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
	"github.com/muster-dev/muster/internal/tasklog"
	"github.com/muster-dev/muster/internal/testkit"
)

var workers atomic.Int64

// useContainers adds the containers of an engine to a worker.
func useContainers(t *testing.T, host string) func(*process.Deps) {
	t.Helper()
	engine, err := docker.Open(host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	return func(deps *process.Deps) {
		containers, err := container.New(container.Config{
			Engine: engine, Worker: fmt.Sprintf("y%d%d", os.Getpid(), workers.Add(1)), Dir: deps.Dir, Allow: &muster.Allow{}, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		testkit.Await(t, "the engine is ready", func() bool { return containers.Check(t.Context()) == nil })
		deps.Containers = containers
	}
}

// fetchUV returns the path of a uv; the test is skipped without one.
func fetchUV(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("MUSTER_UV"), "uv"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "python3", "-m", "pip", "install", "--quiet", "--target", dir, "uv").CombinedOutput(); err != nil {
		t.Skipf("skipped: no uv, and pip cannot fetch it: %v %s", err, out)
	}
	return filepath.Join(dir, "bin", "uv")
}

// wheel returns the wheel of a module.
func wheel(t *testing.T, name, module string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := name + "-1.0.dist-info/"
	for _, entry := range [][2]string{
		{name + ".py", module},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "entry_points.txt", "[console_scripts]\n" + name + " = " + name + ":main\n"},
		{info + "RECORD", fmt.Sprintf("%s.py,,%d\n%sMETADATA,,\n%sRECORD,,\n", name, len(module), info, info)},
	} {
		w, err := z.Create(entry[0])
		if err == nil {
			_, err = w.Write([]byte(entry[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPythonEnvironmentInAContainerOfDocker(t *testing.T) {
	testPythonInContainer(t, containertest.SharedEngine(t))
}

func TestPythonEnvironmentInAContainerOfPodman(t *testing.T) {
	testPythonInContainer(t, containertest.StartPodman(t))
}

// testPythonInContainer checks that a task in a container has the packages of its spec, built with the Python of its image and cached for it
// and its project; that it cannot change them; that its PATH begins with them, before that of its image; and that a damaged one is rebuilt.
func testPythonInContainer(t *testing.T, host string) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped: it builds images")
	}
	uv := fetchUV(t)
	t.Setenv("MUSTER_UV", uv)
	t.Setenv("UV_NO_INDEX", "1")
	b := containertest.PythonImage(t, uv)
	b.Env = []string{"PATH=/image:/usr/bin:/bin"}
	image := containertest.LoadImage(t, host, fmt.Sprintf("muster-test/python:%d", os.Getpid()), b)
	bare := containertest.LoadBusybox(t, host)
	w := newTestEnv(t, useContainers(t, host))
	files := w.Tree(map[string]string{"alpha-1.0-py3-none-any.whl": wheel(t, "alpha", "def main(): print('alpha')\n")})
	spec := func(image string) *muster.TaskSpec {
		return &muster.TaskSpec{
			Kind: muster.KindScript, Image: image, Isolation: muster.IsolationContainer, Files: files, Network: muster.NetworkNone,
			Python: &muster.Python{Packages: []string{"./alpha-1.0-py3-none-any.whl"}},
			Run:    &muster.Command{Shell: `alpha; python3 -c 'import alpha, sys; print(sys.prefix)'; echo $PATH $VIRTUAL_ENV; touch /muster/python/x 2>/dev/null && echo writable; true`},
		}
	}
	const want = "alpha\n/muster/python\n/muster/python/bin:/image:/usr/bin:/bin /muster/python\n"
	r, out := w.run(t, spec(image))
	if r.Outcome != muster.AttemptSucceeded || out != want {
		t.Fatalf("printed %q: %s %s\n%s", out, r.Reason, r.Message, w.Output(t, r.Attempt, tasklog.System))
	}
	if logged := w.Output(t, r.Attempt, tasklog.System); !strings.Contains(logged, "installing 1 package") || !strings.Contains(logged, "uv: ") {
		t.Errorf("the log is %q", logged)
	}
	if r, out = w.run(t, spec(image)); out != want || w.Output(t, r.Attempt, tasklog.System) != "" {
		t.Errorf("the second task printed %q: %s, and logs %q", out, r.Message, w.Output(t, r.Attempt, tasklog.System))
	}

	// As another user.
	ordinary := spec(image)
	ordinary.Container = &muster.Container{User: "1000:1000"}
	ordinary.Python.Version = "3" // another environment
	if r, out = w.run(t, ordinary); out != want {
		t.Errorf("as an ordinary user it printed %q: %s", out, r.Message)
	}

	found, err := filepath.Glob(filepath.Join(w.Deps.Dir, "envs", "*", "lib", "python*", "site-packages", "alpha.py"))
	if err != nil || len(found) != 2 {
		t.Fatalf("the files of the environments are %v %v", found, err)
	}
	for _, file := range found {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Await(t, "the damaged environment is rebuilt", func() bool {
		r, out = w.run(t, spec(image))
		return out == want && strings.Contains(w.Output(t, r.Attempt, tasklog.System), "alpha.py of alpha 1.0 is missing")
	})

	if r, _ = w.run(t, spec(bare)); r.Reason != muster.Dependency || !strings.Contains(r.Message, "uv cannot run in the image muster-test/busybox") {
		t.Errorf("in an image without Python and libraries: %s %s", r.Reason, r.Message)
	}
	b.Links["/usr/bin/python3"] = "nothing"
	for name := range b.Files {
		if strings.HasPrefix(name, "/usr/bin/python") {
			delete(b.Files, name)
		}
	}
	noPython := containertest.LoadImage(t, host, fmt.Sprintf("muster-test/nopython:%d", os.Getpid()), b)
	if r, _ = w.run(t, spec(noPython)); r.Reason != muster.Dependency || !strings.Contains(r.Message, noPython+" has no Python >=3.9: use an image that has it") {
		t.Errorf("in an image without Python: %s %s", r.Reason, r.Message)
	}
}
