//go:build unix

package runtimes_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/runtimes"
)

// works runs the runtime's interpreter with its modules and package.
func works(t *testing.T, rt *run.Runtime) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), rt.Python, "-B", "-c", "import muster_tiny, nugget; print(nugget.version)")
	cmd.Env = []string{"PYTHONPATH=" + strings.Join(rt.ModuleDirs, ":")}
	if out, err := cmd.CombinedOutput(); err != nil || string(bytes.TrimSpace(out)) != "1.5" {
		t.Errorf("%v %s", err, out)
	}
}

// TestARuntimeIsMadeOnceForAll holds that tasks of several processes that ask at once share what one of them
// makes, and that the others report this.
func TestARuntimeIsMadeOnceForAll(t *testing.T) {
	w := newTestEnv(t)
	instances := []*runtimes.Runtimes{w.open(), w.open(), w.open()}
	if e := w.state(instances[0], "tiny"); e.State != runtimes.Absent || e.Packages != 1 {
		t.Errorf("before it is made it is %+v", e)
	}
	observers := make([]recordingObserver, 2*len(instances))
	all := make([]*run.Runtime, len(observers))
	var wg sync.WaitGroup
	for i := range observers {
		wg.Go(func() {
			rt, err := instances[i%len(instances)].Get(t.Context(), "tiny", observers[i].observer())
			if err != nil {
				t.Error(err)
			}
			all[i] = rt
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	made := 0
	for i := range observers {
		made += strings.Count(observers[i].String(), "runtime tiny: 1 package, ")
		if all[i].VenvDir != all[0].VenvDir {
			t.Errorf("one is at %s, another at %s", all[i].VenvDir, all[0].VenvDir)
		}
	}
	if made != 1 {
		t.Errorf("it was made %d times", made)
	}
	works(t, all[0])
	if e := w.state(instances[1], "tiny"); e.State != runtimes.Ready || e.Size < 512<<10 || e.Folder != all[0].VenvDir || e.Used == 0 {
		t.Errorf("when it is made it is %+v", e)
	}
	if left := w.unfinished(); len(left) > 0 {
		t.Errorf("left is %q", left)
	}
	st, err := os.Stat(filepath.Join(all[0].ModuleDirs[0], "muster_tiny", "__init__.py"))
	if err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("the users of tasks cannot read its modules: %v, %v", st, err)
	}
}

// TestDamagedRuntimeIsRebuilt checks that no task gets a runtime with missing or truncated files,
// whatever it is, and that the logs of the worker and of the task say what was found. Files that are cut short in
// an environment are so, too, in what was kept of the packages, which are the same files.
func TestDamagedRuntimeIsRebuilt(t *testing.T) {
	w := newTestEnv(t)
	rts := w.open()
	rt, _ := w.get(rts, "tiny")
	found, err := filepath.Glob(filepath.Join(rt.VenvDir, "lib", "python*", "site-packages", "nugget"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%q %v", found, err)
	}
	module := found[0]
	for what, path := range map[string]string{
		"nugget/__init__.py of nugget 1.5 is missing": filepath.Join(module, "__init__.py"),
		"nugget 1.5 is missing":                       module + "-1.5.dist-info",
		"its interpreter does not work":               filepath.Join(rt.VenvDir, "bin", "python"),
		"muster-runtime.json is missing":              filepath.Join(rt.VenvDir, "muster-runtime.json"),
	} {
		if err := os.Rename(path, path+"~"); err != nil {
			t.Fatal(err)
		}
		if e := w.state(rts, "tiny"); e.State != runtimes.Broken || !strings.Contains(e.Reason, what) {
			t.Errorf("without %s it is %+v", path, e)
		}
		if err := os.Rename(path+"~", path); err != nil {
			t.Fatal(err)
		}
	}
	if e := w.state(rts, "tiny"); e.State != runtimes.Ready {
		t.Fatalf("whole again it is %+v", e)
	}
	if err := os.Truncate(filepath.Join(module, "__init__.py"), 10); err != nil {
		t.Fatal(err)
	}
	again, logged := w.get(rts, "tiny")
	for _, words := range []string{"dependency recovery", "nugget/__init__.py of nugget 1.5 has 10 bytes", "the cached packages are also damaged"} {
		if !strings.Contains(logged, words) {
			t.Errorf("the log does not contain %q: %s", words, logged)
		}
	}
	if again.VenvDir != rt.VenvDir || !strings.Contains(w.log.String(), "rebuilding a damaged Python environment") {
		t.Errorf("the log is %s", &w.log)
	}
	works(t, again)
	if left := w.unfinished(); len(left) > 0 {
		t.Errorf("left is %q", left)
	}
}

// TestModulesAreRewritten checks that changed modules are written again.
func TestModulesAreRewritten(t *testing.T) {
	w := newTestEnv(t)
	code, err := w.open().ModuleDirs("tiny")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(code[0], "muster_core", "__init__.py")
	if err := os.WriteFile(name, []byte("raise SystemExit"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := w.open().ModuleDirs("tiny")
	if err != nil || again[0] != code[0] {
		t.Fatalf("%q %v", again, err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "core = 1\n" {
		t.Errorf("%q %v", b, err)
	}
}

// TestWhatCannotBeMade ends with what is missing, and leaves nothing.
func TestWhatCannotBeMade(t *testing.T) {
	w := newTestEnv(t)
	w.define("poor", "nugget", "absent")
	_, err := w.open().Get(t.Context(), "poor", discardObserver)
	wantMissing(t, err, "runtime poor", "absent")
	_, err = w.open().Get(t.Context(), "tini", discardObserver)
	wantMissing(t, err, "there is no runtime tini", "did you mean tiny")
	w.wheel("nugget", "1.5")
	w.define("forged", "nugget")
	lock := w.files["python/forged/requirements.lock"]
	lock.Data = bytes.Replace(lock.Data, lock.Data[len(lock.Data)-9:], []byte("00000000\n"), 1)
	_, err = w.open().Get(t.Context(), "forged", discardObserver)
	wantMissing(t, err, "runtime forged", "sha256:")
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := &run.Stopped{Outcome: muster.AttemptCancelled}
	cancel(stopped)
	if _, err = w.open().Get(ctx, "tiny", discardObserver); !errors.As(err, &stopped) {
		t.Errorf("for a stopped task it ends with %v", err)
	}
	if left := w.unfinished(); len(left) > 0 {
		t.Errorf("left is %q", left)
	}
	if e := w.state(w.open(), "poor"); e.State != runtimes.Absent {
		t.Errorf("it is %+v", e)
	}
}

// TestRoomIsMade holds that what was not used for longest is removed first, and never what a process uses.
func TestRoomIsMade(t *testing.T) {
	w := newTestEnv(t)
	for _, name := range []string{"first", "second", "third"} {
		w.wheel(name, "1.5")
		w.define(name, name)
	}
	all := map[string]*run.Runtime{}
	for i, name := range []string{"first", "second", "tiny"} {
		all[name], _ = w.get(w.open(), name)
		then := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(filepath.Join(all[name].VenvDir, "muster-runtime.json"), then, then); err != nil {
			t.Fatal(err)
		}
	}
	// A task that has run for hours.
	cmd := exec.CommandContext(t.Context(), all["first"].Python, "-c", "import sys; print('up', flush=True); sys.stdin.read()")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	size := w.state(w.open(), "first").Size
	tight := w.open(func(c *runtimes.Config) { c.Budget = 3*size + size/2 })
	w.get(tight, "third")
	for name, want := range map[string]runtimes.State{"first": runtimes.Ready, "second": runtimes.Absent, "tiny": runtimes.Ready, "third": runtimes.Ready} {
		if e := w.state(tight, name); e.State != want {
			t.Errorf("%s is %+v\n%s", name, e, &w.log)
		}
	}
	if _, err := tight.Remove(t.Context(), "first", discardObserver); muster.CodeOf(err) != muster.Conflict {
		t.Errorf("what is in use is removed with %v", err)
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	before := tight.Disk()
	freed, err := tight.Remove(t.Context(), "first", discardObserver)
	if e := w.state(tight, "first"); err != nil || freed < size || freed != before.Own["first"]+before.Cached || e.State != runtimes.Absent {
		t.Errorf("removed are %s, %v; it is %+v", freed, err, e)
	}
}

// TestAGivenInterpreter checks that an external interpreter is used as it is, that missing packages are an error, and that nothing is installed.
func TestAGivenInterpreter(t *testing.T) {
	w := newTestEnv(t)
	w.wheel("other", "1.5")
	w.define("rich", "nugget", "other")
	env, _ := w.get(w.open(), "tiny")
	external := w.open(func(c *runtimes.Config) { c.Wheels, c.Python = "", env.Python })
	rt, _ := w.get(external, "tiny")
	if rt.Python != env.Python || rt.VenvDir != "" {
		t.Errorf("it is %+v", rt)
	}
	works(t, rt)
	_, err := external.Get(t.Context(), "rich", discardObserver)
	wantMissing(t, err, "the interpreter "+env.Python+" lacks other>=1 for runtime rich", "without --python")
	if e := w.state(external, "rich"); e.State != runtimes.Incomplete || !strings.Contains(e.Reason, "other") {
		t.Errorf("it is %+v", e)
	}
	for _, path := range []string{"/bin/false", "/bin/echo"} {
		_, err := w.open(func(c *runtimes.Config) { c.Wheels, c.Python = "", path }).Get(t.Context(), "tiny", discardObserver)
		wantMissing(t, err, path)
	}
	for _, cfg := range []runtimes.Config{{Dir: w.data, Python: "/no/such"}, {Dir: w.data, Wheels: "/no/such"}, {Dir: w.data, Wheels: env.Python}, {Dir: w.data, Budget: -1}} {
		if _, err := runtimes.New(cfg); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestAKilledBuild checks that the remains of a killed build are not used, and are removed by the next build.
func TestAKilledBuild(t *testing.T) {
	w := newTestEnv(t)
	// uv is stopped once it has started, and its parent is killed.
	begun := filepath.Join(w.data, "begun")
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(begun, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	slow := filepath.Join(w.data, "slow-uv")
	script := "#!/bin/sh\ncase $1 in pip) echo $$ > " + begun + "; exec sleep 600;; esac\nexec " + w.uv + " \"$@\"\n"
	if err := os.WriteFile(slow, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBuilder$")
	cmd.Env = append(os.Environ(), "BUILDER_DATA="+w.data, "BUILDER_UV="+slow, "BUILDER_WHEELS="+w.wheels)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := pipe.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(pipe).ReadString('\n')
	if err != nil {
		t.Fatalf("it does not begin: %v", err)
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(orphan, syscall.SIGKILL) }() // which the next worker would do
	rts := w.open()
	if e := w.state(rts, "tiny"); e.State != runtimes.Building || e.Step != "made for task 1.0: installing 1 package" {
		t.Errorf("meanwhile it is %+v", e)
	}
	// A waiting process gets the step and the requester, and builds after the other one was killed.
	waitSteps := make(chan string, 1)
	observer := discardObserver
	observer.Step = func(step string) {
		select {
		case waitSteps <- step:
		default:
		}
	}
	var rt *run.Runtime
	var late sync.WaitGroup
	late.Go(func() {
		var err error
		if rt, err = w.open().Get(t.Context(), "tiny", observer); err != nil {
			t.Error(err)
		}
	})
	if step := <-waitSteps; step != "waiting for runtime tiny, made for task 1.0: installing 1 package" {
		t.Errorf("the waiting process gets %q", step)
	}
	if left := w.unfinished(); len(left) != 1 {
		t.Errorf("while it is made, there are %q", left)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	late.Wait()
	if rt == nil {
		return
	}
	works(t, rt)
	if left := w.unfinished(); len(left) > 0 {
		t.Errorf("left is %q", left)
	}
}

// TestBuilder is what TestAKilledBuild kills.
func TestBuilder(t *testing.T) {
	data := os.Getenv("BUILDER_DATA")
	if data == "" {
		return
	}
	w := &testEnv{t: t, data: data, wheels: os.Getenv("BUILDER_WHEELS"), uv: os.Getenv("BUILDER_UV"), files: fstest.MapFS{}}
	w.define("tiny", "nugget")
	observer := discardObserver
	observer.Requester = "task 1.0"
	_, err := w.open().Get(t.Context(), "tiny", observer)
	t.Fatal(err)
}

// TestAvailable checks that a machine that can neither build environments nor fetch uv has no runtimes, and that nothing is built to find out.
func TestAvailable(t *testing.T) {
	bin, data := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin)
	t.Setenv("MUSTER_UV", "")
	program := func(name, text string) string {
		t.Helper()
		path := filepath.Join(bin, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open := func(cfg runtimes.Config) *runtimes.Runtimes {
		t.Helper()
		r, err := runtimes.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := open(runtimes.Config{Dir: data})
	want := func(r *runtimes.Runtimes, likely bool, text string) {
		t.Helper()
		err := r.Available(t.Context(), "core")
		if r.Likely("core") != likely || (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("likely: %t, %v; want %t, %q", r.Likely("core"), err, likely, text)
		}
	}
	want(r, false, "neither uv nor a python3")
	python := program("python3", "exit 1")
	want(r, true, "neither uv nor a pip")
	program("python3", "exit 0")
	want(r, true, "")
	program("uv", "exit 1")
	want(r, true, "")
	given := open(runtimes.Config{Dir: data, Python: python})
	program("python3", `echo 'muster {"lacks": ["torch>=2"]}'`)
	want(given, false, "lacks torch>=2 for runtime core")
	program("python3", `echo 'muster {"lacks": []}'`)
	want(given, false, "")
	program("python3", `echo 'muster {"lacks": ["torch>=2"]}'`) // removed again
	want(given, false, "lacks torch>=2")
	if entries, err := os.ReadDir(data); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v in the data dir", entries, err)
	}
}
