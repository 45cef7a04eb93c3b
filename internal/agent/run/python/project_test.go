package python_test

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/python"
)

// useWheels makes uv install from wheels that this test writes, without an index, and returns their folder. The test is skipped without uv.
func useWheels(t *testing.T, wheels ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped: it may download uv")
	}
	if _, err := exec.LookPath("uv"); err != nil && os.Getenv("MUSTER_UV") == "" {
		needIndex(t)
	}
	dir := t.TempDir()
	for _, wheel := range wheels {
		name, version, _ := strings.Cut(wheel, " ")
		writeWheel(t, dir, name, version)
	}
	t.Setenv("UV_FIND_LINKS", dir)
	t.Setenv("UV_NO_INDEX", "1")
	return dir
}

// writeWheel writes the wheel of a module whose VERSION is the version.
func writeWheel(t *testing.T, dir, name, version string) string {
	t.Helper()
	path := filepath.Join(dir, fmt.Sprintf("%s-%s-py3-none-any.whl", name, version))
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	add := func(entry, text string) {
		w, err := z.Create(entry)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	var record strings.Builder
	for entry, text := range map[string]string{
		name + ".py":      fmt.Sprintf("VERSION = %q\n", version),
		info + "METADATA": fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version),
		info + "WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	} {
		sum := sha256.Sum256([]byte(text))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", entry, base64.RawURLEncoding.EncodeToString(sum[:]), len(text))
		add(entry, text)
	}
	add(info+"RECORD", record.String()+info+"RECORD,,\n")
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// backend is a build backend in the project's own folder, which needs no packages, and changes that folder as others do.
const backend = `
import os, zipfile
def get_requires_for_build_wheel(config_settings=None): return []
def build_wheel(directory, config_settings=None, metadata_directory=None):
    os.makedirs("build", exist_ok=True)
    info, name = "demo-1.0.dist-info/", "demo-1.0-py3-none-any.whl"
    files = {
        "demo.py": open("demo.py").read(),
        info + "METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\nRequires-Dist: alpha\nProvides-Extra: gpu\nRequires-Dist: beta; extra == 'gpu'\n",
        info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        info + "entry_points.txt": "[console_scripts]\ndemo = demo:main\n",
    }
    files[info + "RECORD"] = "".join(f + ",,\n" for f in files) + info + "RECORD,,\n"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as z:
        for f, text in files.items(): z.writestr(f, text)
    return name
`

// project returns the files of a project that depends on alpha, with the extra gpu (beta) and the group dev (gamma).
func project() map[string]string {
	return map[string]string{
		"pyproject.toml": `[project]
name = "demo"
version = "1.0"
requires-python = ">=3.9"
dependencies = ["alpha"]
[project.optional-dependencies]
gpu = ["beta"]
[dependency-groups]
dev = ["gamma"]
[project.scripts]
demo = "demo:main"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
`,
		"backend.py": backend,
		"demo.py": `import importlib
def main():
    for name in ("alpha", "beta", "gamma"):
        try: print(name, importlib.import_module(name).VERSION)
        except ImportError: pass
`,
	}
}

// request is a request for an environment of a task with these files.
func request(t *testing.T, files map[string]string, p *muster.Python) *run.PythonRequest {
	t.Helper()
	write := func(_ context.Context, dir string) error {
		for name, text := range files {
			path := filepath.Join(dir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				return err
			}
		}
		return nil
	}
	dir := t.TempDir()
	if err := write(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return &run.PythonRequest{Project: "default", Python: p, Root: root, Files: fmt.Sprint(files), Fetch: write}
}

// getFor returns the environment of a request, and whether it was built.
func getFor(t *testing.T, e *python.Envs, r *run.PythonRequest) (dir string, built bool) {
	t.Helper()
	h := &recordingObserver{}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir, err := e.GetFor(ctx, r, h.observer())
	if err != nil {
		t.Fatalf("%v\n%s", err, h.all())
	}
	return dir, strings.Contains(h.all(), "built in")
}

// prints runs a program of an environment, which must print this.
func prints(t *testing.T, dir, program, want string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "bin", program), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%s printed %q instead of %q: %v", program, out, want, err)
	}
}

func TestProjectIsInstalledWithItsExtrasAndGroups(t *testing.T) {
	useWheels(t, "alpha 1.0", "beta 1.0", "gamma 1.0")
	e, _ := newEnvs(t)
	files := project()
	dir, built := getFor(t, e, request(t, files, &muster.Python{Project: "."}))
	prints(t, dir, "demo", "alpha 1.0\n")
	if again, rebuilt := getFor(t, e, request(t, files, &muster.Python{Project: "."})); again != dir || !built || rebuilt {
		t.Errorf("the same files have the environments %s and %s, built %v and %v", dir, again, built, rebuilt)
	}
	all, _ := getFor(t, e, request(t, files, &muster.Python{Project: ".", Extras: []string{"gpu"}, Groups: []string{"dev"}}))
	prints(t, all, "demo", "alpha 1.0\nbeta 1.0\ngamma 1.0\n")

	files["demo.py"] = "def main(): print('changed')\n"
	changed, built := getFor(t, e, request(t, files, &muster.Python{Project: "."}))
	prints(t, changed, "demo", "changed\n")
	if changed == dir || !built {
		t.Errorf("changed files have the same environment: %s", changed)
	}
	prints(t, dir, "demo", "alpha 1.0\n")

	// In a folder of the files, with a package beside.
	inFolder := map[string]string{}
	for name, text := range project() {
		inFolder["code/"+name] = text
	}
	more, _ := getFor(t, e, request(t, inFolder, &muster.Python{Project: "code", Packages: []string{"gamma"}}))
	prints(t, more, "demo", "alpha 1.0\ngamma 1.0\n")
}

func TestLockedProjectGetsTheLockedVersions(t *testing.T) {
	wheels := useWheels(t, "alpha 1.0", "beta 1.0", "gamma 1.0")
	e, data := newEnvs(t)
	files := project()
	getFor(t, e, request(t, files, &muster.Python{Project: "."})) // fetches uv
	uv := os.Getenv("MUSTER_UV")
	if uv == "" {
		uv = filepath.Join(data, "tools", "uv", "bin", "uv")
	}
	r := request(t, files, &muster.Python{Project: "."})
	cmd := exec.CommandContext(t.Context(), uv, "lock", "--project", r.Root.Name())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	lock, err := r.Root.ReadFile("uv.lock")
	if err != nil {
		t.Fatal(err)
	}
	writeWheel(t, wheels, "alpha", "1.1")
	newest, _ := getFor(t, e, request(t, files, &muster.Python{Project: ".", Groups: []string{"dev"}}))
	prints(t, newest, "demo", "alpha 1.1\ngamma 1.0\n")
	files["uv.lock"] = string(lock)
	locked, _ := getFor(t, e, request(t, files, &muster.Python{Project: "."}))
	prints(t, locked, "demo", "alpha 1.0\n")
}

func TestPackagesOfTheTasksFiles(t *testing.T) {
	useWheels(t, "alpha 1.0", "beta 1.0")
	e, _ := newEnvs(t)
	wheel, err := os.ReadFile(writeWheel(t, t.TempDir(), "delta", "2.0"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"wheels/delta-2.0-py3-none-any.whl": string(wheel)}
	for name, text := range project() {
		files["lib/"+name] = text
	}
	dir, _ := getFor(t, e, request(t, files, &muster.Python{Packages: []string{"./wheels/delta-2.0-py3-none-any.whl", "./lib[gpu]"}}))
	prints(t, dir, "demo", "alpha 1.0\nbeta 1.0\n")
	prints(t, dir, "python", "2.0\n", "-c", "import delta; print(delta.VERSION)")
}

func TestProjectThatCannotBeInstalledSaysWhy(t *testing.T) {
	useWheels(t, "alpha 1.0", "beta 1.0", "gamma 1.0")
	e, _ := newEnvs(t)
	absent := project()
	absent["pyproject.toml"] = strings.Replace(absent["pyproject.toml"], "alpha", "omega", 1)
	noFiles := request(t, project(), &muster.Python{Project: "."})
	noFiles.Files = ""
	for want, r := range map[string]*run.PythonRequest{
		"pyproject.toml does not exist in the task's folder": request(t, nil, &muster.Python{Project: "."}),
		"set files":        noFiles,
		"nothing":          request(t, project(), &muster.Python{Project: ".", Extras: []string{"nothing"}}),
		"omega":            request(t, absent, &muster.Python{Project: "."}),
		"is not a package": request(t, nil, &muster.Python{Packages: []string{"./../x"}}),
		"../lib":           request(t, nil, &muster.Python{Packages: []string{"../lib"}}),
	} {
		_, err := e.GetFor(t.Context(), r, (&recordingObserver{}).observer())
		f, ok := errors.AsType[*run.TaskError](err)
		if !ok || f.Reason != muster.Dependency || !strings.Contains(f.Message, want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// TestChangedFileIsFound checks that a file that was changed in place, with the same size, is installed again as it was, and not from the
// cache, whose file was changed, too.
func TestChangedFileIsFound(t *testing.T) {
	useWheels(t, "alpha 1.0")
	e, _ := newEnvs(t)
	w := python.Spec{Requirements: []string{"alpha"}}
	dir := get(t, e, w, &recordingObserver{})
	found, err := filepath.Glob(filepath.Join(dir, "lib", "python*", "site-packages", "alpha.py"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v %v", found, err)
	}
	untilRebuilt(t, e, w, "alpha.py of alpha 1.0 was changed after it was installed", func() error {
		return os.WriteFile(found[0], []byte("VERSION = \"9.9\"\n"), 0o600)
	})
	prints(t, dir, "python", "1.0\n", "-c", "import alpha; print(alpha.VERSION)")
	dir = get(t, e, python.Spec{Requirements: []string{"alpha==1.0"}}, &recordingObserver{})
	prints(t, dir, "python", "1.0\n", "-c", "import alpha; print(alpha.VERSION)")
}
