package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stream is the output of go test -json.
type stream struct{ strings.Builder }

func (s *stream) add(events ...event) *stream {
	for _, e := range events {
		e.Package = module + e.Package
		line, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		s.Write(append(line, '\n'))
	}
	return s
}

// test adds the events of one test, and what it prints.
func (s *stream) test(pkg, name, action, message string) *stream {
	return s.add(event{Action: "run", Package: pkg, Test: name},
		event{Action: "output", Package: pkg, Test: name, Output: "=== RUN   " + name + "\n"},
		event{Action: "output", Package: pkg, Test: name, Output: "    x_test.go:7: " + message + "\n"},
		event{Action: "output", Package: pkg, Test: name, Output: "--- " + strings.ToUpper(action) + ": " + name + " (0.00s)\n"},
		event{Action: action, Package: pkg, Test: name})
}

// end adds the end of a package.
func (s *stream) end(pkg, action string) *stream {
	words := map[string]string{"pass": "ok  ", "fail": "FAIL"}
	if action == "fail" {
		s.add(event{Action: "output", Package: pkg, Output: "FAIL\n"})
	} else {
		s.add(event{Action: "output", Package: pkg, Output: "PASS\n"})
	}
	return s.add(event{Action: "output", Package: pkg, Output: words[action] + "\t" + module + pkg + "\t1.000s\n"}, event{Action: action, Package: pkg})
}

// runReport runs report with a list and a command for tests that failed, and returns its output and error.
func runReport(t *testing.T, in, list, run string, strict bool, command ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "skips.txt")
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err := report(t.Context(), source{strings.NewReader(in), command}, &out, file, run, strict)
	return out.String(), err
}

func TestSkips(t *testing.T) {
	skipped := new(stream).test("a", "TestGood", "pass", "fine").test("a", "TestDisk/small", "skip", "no disk").end("a", "pass").String()
	whole := new(stream).test("a", "TestGood", "pass", "fine").end("a", "pass").String()
	failed := new(stream).test("a", "TestGood", "fail", "broken").end("a", "fail").String()
	for name, c := range map[string]struct {
		in, list, run string
		lenient       bool
		want          string // in the error; "" for none
		message       string // in the output
	}{
		"unlisted":              {in: skipped, run: "root", want: "1 tests were skipped", message: "a TestDisk/small: x_test.go:7: no disk"},
		"unlisted, not in CI":   {in: skipped, run: "root", lenient: true, message: "1 tests were skipped, 1 of them not on the list"},
		"listed":                {in: skipped, list: "root a TestDisk/small it mounts", run: "root"},
		"listed by a pattern":   {in: skipped, list: "# why\n\nuser,root a TestDisk/* it mounts", run: "root"},
		"listed for all tests":  {in: skipped, list: "root a * it mounts", run: "root"},
		"listed by its text":    {in: skipped, list: `root a "no disk" it mounts`, run: "root"},
		"listed everywhere":     {in: skipped, list: `root * "no disk" it mounts`, run: "root"},
		"another text":          {in: skipped, list: `root * "no network" it mounts`, run: "root", want: "1 tests were skipped"},
		"a text out of date":    {in: whole, list: `root a "no disk" it mounts`, run: "root", want: "1 entries of it are stale"},
		"everywhere is open":    {in: whole, list: `root * "no disk" it mounts`, run: "root"},
		"no end of the text":    {in: whole, list: `root a "no disk it mounts`, run: "root", want: "line 1"},
		"listed for others":     {in: skipped, list: "user a TestDisk/small it mounts", run: "root", want: "1 tests were skipped"},
		"of another package":    {in: skipped, list: "root? b TestDisk/small it mounts", run: "root", want: "1 tests were skipped"},
		"out of date":           {in: whole, list: "\nroot a TestDisk it mounts", run: "root", want: "1 entries of it are stale", message: "skips.txt:2: delete this entry"},
		"not out of date there": {in: whole, list: "user a TestDisk it mounts", run: "root"},
		"not always":            {in: whole, list: "root? a TestDisk it mounts", run: "root"},
		"not tested":            {in: whole, list: "root b TestDisk it mounts", run: "root"},
		"failed":                {in: failed, list: "root a TestDisk it mounts", run: "root", want: "tests failed"},
		"cut off":               {in: new(stream).test("a", "TestGood", "pass", "fine").String(), run: "root", want: "did not finish"},
		"nothing":               {in: "", run: "root", want: "no package was tested"},
		"no such run":           {in: whole, run: "night", want: `unknown kind of run "night"`},
		"no such kind":          {in: whole, list: "night a TestDisk it mounts", run: "root", want: `line 1: unknown kind of run "night"`},
		"no reason":             {in: whole, list: "root a TestDisk", run: "root", want: "line 1"},
		"a broken pattern":      {in: whole, list: "root a Test[ it mounts", run: "root", want: "syntax error in pattern"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runReport(t, c.in, c.list, c.run, !c.lenient)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q; it prints\n%s", err, c.want, out)
			}
			if !strings.Contains(out, c.message) {
				t.Errorf("it prints\n%s\nwithout %q", out, c.message)
			}
		})
	}
}

func TestOutput(t *testing.T) {
	in := new(stream).
		test("a", "TestGood", "pass", "quiet").test("a", "TestBad", "fail", "broken").
		add(event{Action: "run", Package: "a", Test: "TestHangs"}, event{Action: "output", Package: "a", Test: "TestHangs", Output: "panic: test timed out\n"}).
		end("a", "fail").
		add(event{Action: "output", Package: "b", Output: "?   \t" + module + "b\t[no test files]\n"}, event{Action: "skip", Package: "b"}).
		add(event{Action: "build-output", Output: "x.go:1:1: syntax error\n"}).
		test("c", "TestGood", "pass", "quiet").add(event{Action: "pass", Package: "c", Elapsed: 2}). // as test2json alone has it
		end("d", "pass").String()
	out, err := runReport(t, "go: a warning\n"+in, "", "root", true)
	want := "go: a warning\n    x_test.go:7: broken\n--- FAIL: TestBad (0.00s)\npanic: test timed out\nFAIL\nFAIL\t" + module + "a\t1.000s\n" +
		"?   \t" + module + "b\t[no test files]\nx.go:1:1: syntax error\nok  \t" + module + "c\t2.000s\nok  \t" + module + "d\t1.000s\n"
	if out != want || err == nil {
		t.Errorf("it prints (%v)\n%s\nwant\n%s", err, out, want)
	}
}

// goModule writes a module with a test file, and returns a function that runs go test in it.
func goModule(t *testing.T, test string) (dir string, run func() string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"go.mod": "module github.com/muster-dev/muster\n", "x_test.go": test} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"GOFLAGS": "", "GOPROXY": "off", "CGO_ENABLED": "0"} {
		t.Setenv(name, value)
	}
	return dir, func() string {
		cmd := exec.Command("go", "test", "-json", "./...")
		cmd.Dir = dir
		in, _ := cmd.Output() // tests of it fail
		return string(in)
	}
}

// TestGo checks the events of the installed go test.
func TestGo(t *testing.T) {
	_, run := goModule(t, "package x\nimport \"testing\"\nfunc TestSkipped(t *testing.T) { t.Skip(\"no moon\") }\nfunc TestBad(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Error(\"broken\") }) }\n")
	in := run()
	out, err := runReport(t, in, "", "root", true)
	for _, want := range []string{"x_test.go:4: broken", "--- FAIL: TestBad/sub", "FAIL\tgithub.com/muster-dev/muster", "TestSkipped: x_test.go:3: no moon"} {
		if !strings.Contains(out, want) {
			t.Errorf("it prints (%v)\n%s\nwithout %q; go test says\n%s", err, out, want, in)
		}
	}
}

// TestRerun checks that a test that fails once is flaky, and that what fails again, or is no test, is an error.
func TestRerun(t *testing.T) {
	const flaky = `
func TestFlaky(t *testing.T) {
	if _, err := os.Stat("second"); err != nil {
		os.WriteFile("second", nil, 0o600)
		t.Fatal("too slow")
	}
}
`
	for name, c := range map[string]struct {
		tests, want, err string
	}{
		"a flaky test":             {flaky + "func TestGood(t *testing.T) {}", "FLAKY: TestFlaky", ""},
		"one that fails always":    {flaky + `func TestBad(t *testing.T) { t.Error("broken") }`, "TestBad of " + strings.TrimSuffix(module, "/") + " fails again", "tests failed"},
		"one that fails rarely":    {`func TestBad(t *testing.T) { f, _ := os.OpenFile("n", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); f.WriteString("x"); s, _ := f.Stat(); if s.Size()%2 == 1 { t.Error("odd") } }`, "fails again", "tests failed"},
		"a failure of the package": {flaky + `func TestMain(m *testing.M) { m.Run(); os.Exit(1) }`, "too slow", "tests failed"},
		"a panic":                  {`func TestGood(t *testing.T) {}; func init() { if _, err := os.Stat("second"); err != nil { os.WriteFile("second", nil, 0o600); panic("no") } }`, "panic: no", "tests failed"},
		"too many":                 {`func fail(t *testing.T) { if _, err := os.Stat(t.Name()); err != nil { os.WriteFile(t.Name(), nil, 0o600); t.Error("broken") } }; func TestA(t *testing.T) { fail(t) }; func TestB(t *testing.T) { fail(t) }; func TestC(t *testing.T) { fail(t) }; func TestD(t *testing.T) { fail(t) }`, "TestD", "tests failed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := goModule(t, "package x\nimport (\"os\"; \"testing\")\n"+c.tests)
			out, err := runReport(t, "", "", "root", true, "go", "-C", dir, "test", "-json", "--", "./...")
			if !strings.Contains(out, c.want) || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
				t.Errorf("it prints (%v)\n%s\nwant %q and %q", err, out, c.want, c.err)
			}
			if err != nil && strings.Contains(out, "FLAKY") {
				t.Errorf("it prints\n%s", out)
			}
		})
	}
}

// TestCommand checks that a command that fails in another way than go test does is an error, although all tests passed before.
func TestCommand(t *testing.T) {
	const passed = `echo '{"Action":"pass","Package":"` + module + `a"}'; `
	for script, want := range map[string]string{
		passed + "exit 0": "",
		passed + "exit 1": "exit status 1",
		passed + "exit 3": "exit status 3",
		passed + `echo '{"Action":"fail","Package":"` + module + `b"}'; kill -9 $$`: "signal: killed",
	} {
		_, err := runReport(t, "", "", "root", true, "sh", "-c", script, "sh", "--", module+"a")
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
}

// TestCommittedList checks that the list of this repository can be read for every kind of run, and names packages and
// tests that are there.
func TestCommittedList(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, run := range kinds {
		f, err := os.Open(filepath.Join(root, "test", "skips.txt"))
		if err != nil {
			t.Fatal(err)
		}
		list, err := parseList(f, run)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.pkg == "*" {
				continue
			}
			files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(e.pkg), "*_test.go"))
			if err != nil || len(files) == 0 {
				t.Errorf("line %d: there are no tests in %s", e.line, e.pkg)
			}
			name, _, _ := strings.Cut(e.test, "/")
			if name = strings.TrimRight(name, "*"); !declared(t, files, name) {
				t.Errorf("line %d: %s has no test %s", e.line, e.pkg, name)
			}
		}
	}
}

// declared reports whether a test whose name begins so is in a file.
func declared(t *testing.T, files []string, name string) bool {
	t.Helper()
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "func "+name) {
			return true
		}
	}
	return false
}
