package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
)

// TestMountsThatAreReplacedAfterTheirCheck checks that a container gets what was checked, whatever is at its path when the engine starts it, and
// that nothing remains mounted.
func TestMountsThatAreReplacedAfterTheirCheck(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	dir, shut := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(shut, "in"), "shut")
	w := newTestEnv(t, func(c *Config) { c.Allow = &muster.Allow{Mounts: []string{dir}} })
	replace := func(path string) {
		if err := errors.Join(os.Rename(path, path+".moved"), os.Symlink(shut, path)); err != nil {
			t.Fatal(err)
		}
	}
	specOf := func(source string) *run.ContainerSpec {
		b := specWith(w.shell(), muster.Container{Mounts: []muster.Mount{{Source: source, Target: "/data"}}}, "sh", "-c", "cat /data/in /data")
		b.HasInterpreter = true
		return b
	}
	t.Run("after its creation", func(t *testing.T) {
		set := filepath.Join(dir, "created")
		write(filepath.Join(set, "in"), "open")
		ctr := w.mustCreate(specOf(set))
		replace(set)
		if out, _ := w.runCreated(ctr); !strings.Contains(out, "open") || strings.Contains(out, "shut") {
			t.Errorf("it printed %q", out)
		}
	})
	t.Run("during the pull", func(t *testing.T) {
		for _, path := range []string{"one/set", "two", "three/file/in"} {
			set, b := filepath.Join(dir, path), newSpec(w.shell(), "true")
			write(filepath.Join(set, "in"), "open")
			mounts, err := w.resolveMounts(specOf(filepath.Join(set, "in")).Task.Spec)
			if err != nil {
				t.Fatal(err)
			}
			replace(filepath.Join(dir, strings.Split(path, "/")[0]))
			img, err := w.inspectImage(t.Context(), w.shell())
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.createFrom(t.Context(), b, w.shell(), img, mounts, w.lines.add)
			wantTaskError(t, err, muster.Rejected, "was replaced")
		}
	})
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || len(w.staging.held) > 0 || strings.Contains(string(mounts), w.staging.dir) {
		t.Errorf("%v: something is still mounted below %s", err, w.staging.dir)
	}
}

// TestMountsSurviveTheWorker checks that the mounts of a container that is being started are there after a crash of the worker, and go with those of the next one.
func TestMountsSurviveTheWorker(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	data := t.TempDir()
	before, after := newStaging(data), newStaging(data)
	t.Cleanup(after.clear)
	in := func(name string) docker.Mount {
		path := filepath.Join(data, name)
		if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "in"), []byte(name), 0o600)); err != nil {
			t.Fatal(err)
		}
		return docker.Mount{Source: path}
	}
	first, second := in("first"), in("second")
	started, err := before.stage("first", []docker.Mount{first})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"second", "first"} { // an attempt again, too
		staged, err := after.stage(name, []docker.Mount{second})
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := os.ReadFile(filepath.Join(staged[0].Source, "in")); string(text) != "second" {
			t.Errorf("%s has %q", name, text)
		}
		if text, _ := os.ReadFile(filepath.Join(started[0].Source, "in")); name == "second" && string(text) != "first" {
			t.Errorf("the container that is being started has %q", text)
		}
	}
	after.release("first")
	after.release("second")
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), after.dir) {
		t.Errorf("%v: something is still mounted below %s", err, after.dir)
	}
}
