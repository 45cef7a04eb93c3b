//go:build unix

package builtin

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// needPytest skips the test without pytest, which it looks up like a task.
func needPytest(t *testing.T) {
	t.Helper()
	t.Setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1") // what else is installed here is no matter, and slow
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import pytest").Run(); err != nil {
		t.Skip("python3 has no pytest here")
	}
}

func TestPytest(t *testing.T) {
	needPytest(t)
	w := newEnv(t)
	write(t, "t/test_all.py", `
import os, pytest
def test_good(): pass
def test_bad(): assert 1 == 2, "not equal"
def test_flaky():
    first = not os.path.exists("flag")
    open("flag", "w").close()
    assert not first
@pytest.mark.skip(reason="not here")
def test_skipped(): pass
@pytest.mark.xfail
def test_expected(): assert 0
@pytest.fixture
def broken(): raise RuntimeError("in setup")
def test_setup(broken): pass
@pytest.mark.parametrize("x", ["a/b", "c d", "ü::["])
def test_many(x): pass
`)
	write(t, "t/test_syntax.py", "def test(:\n")
	e := w.run(t.Context(), "test", `{"test_file": "t/test_all.py", "test_args": ["-q"], "reruns": 1}`)
	e.failed(t, "exit_code", "2 of 9 cases failed: t/test_all.py::test_bad, t/test_all.py::test_setup")
	e.numbers(t, map[string]float64{"passed": 5, "failed": 1, "errors": 1, "skipped": 2, "flaky": 1, "total": 9})
	lines := w.artifact("cases.jsonl")
	for _, c := range lines {
		message, _ := c["message"].(string)
		for id, word := range map[string]string{"bad": "not equal", "skipped": "not here", "setup": "in setup", "expected": "expected to fail"} {
			if c["name"] == "test_"+id && !strings.Contains(message, word) {
				t.Errorf("%v does not say %s", c, word)
			}
		}
	}
	if len(lines) != 9 {
		t.Errorf("%d cases are kept", len(lines))
	}
	e = w.run(t.Context(), "test", `{"test_file": ["t/test_syntax.py", "t/test_all.py::test_good"], "test_args": ["--continue-on-collection-errors"]}`)
	e.failed(t, "exit_code", "1 of 2 cases failed: t/test_syntax.py")
	e = w.run(t.Context(), "test", `{"test_file": "t/test_all.py::test_many"}`)
	if e.code != 0 {
		t.Errorf("%s", e.message)
	}
	e.numbers(t, map[string]float64{"passed": 3, "total": 3})
	if _, err := os.Stat(filepath.Join(w.out, "junit.xml")); err != nil {
		t.Error(err)
	}
}

// A test that takes the interpreter down fails, those before it count, and those after it were not run.
func TestPytestCrashes(t *testing.T) {
	needPytest(t)
	w := newEnv(t)
	write(t, "test_crash.py", "import os, signal\ndef test_1(): pass\ndef test_2(): os.kill(os.getpid(), signal.SIGSEGV)\ndef test_3(): pass\n")
	e := w.run(t.Context(), "test", `{"test_file": "test_crash.py"}`)
	e.failed(t, "exit_code", "1 of 2 cases failed: test_crash.py::test_2", "1 more were not run")
	e.numbers(t, map[string]float64{"passed": 1, "errors": 1, "not_run": 1})
	if got := w.artifact("cases.jsonl")[1]["message"]; !strings.Contains(fmt.Sprint(got), "segmentation fault") {
		t.Errorf("got %v", got)
	}
}

// A plugin may find fault though each case passed, as that of coverage does; and a run may be broken off between two cases.
func TestPytestFailsWithoutFailedCase(t *testing.T) {
	needPytest(t)
	for code, hook := range map[string]string{
		"1": "def pytest_sessionfinish(session): session.exitstatus = 1\n",
		"2": "import pytest\ndef pytest_runtest_logfinish(nodeid):\n    if nodeid.endswith('_1'): pytest.exit('enough')\n",
	} {
		w := newEnv(t)
		write(t, "conftest.py", hook)
		write(t, "test_two.py", "def test_1(): pass\ndef test_2(): pass\n")
		e := w.run(t.Context(), "test", `{"test_file": "test_two.py", "reruns": 1}`)
		e.failed(t, "exit_code", "no case failed, but pytest exited with code "+code)
	}
}

// Cases that were found and not run are reported, and the task fails: pytest itself may exit with 0, and a rerun may fix the failure at which it stopped.
func TestPytestOmitsCases(t *testing.T) {
	needPytest(t)
	w := newEnv(t)
	write(t, "test_four.py", `
import os
def test_a(): pass
def test_flaky():
    first = not os.path.exists("flag")
    open("flag", "w").close()
    assert not first
def test_c(): pass
def test_d(): pass
`)
	e := w.run(t.Context(), "test", `{"test_args": ["-x"], "reruns": 1}`)
	e.failed(t, "exit_code", "2 of 4 cases did not run", "-x")
	e.numbers(t, map[string]float64{"passed": 2, "flaky": 1, "not_run": 2})
	e = w.run(t.Context(), "test", `{"test_args": ["--collect-only"]}`)
	e.failed(t, "exit_code", "4 of 4 cases did not run")
	e = w.run(t.Context(), "test", `{"test_args": ["-k", "nothing"]}`)
	e.failed(t, "bad_input", "found 4 cases", "-k")
	e = w.run(t.Context(), "test", `{"test_args": ["-k", "test_c or test_d"]}`)
	if e.code != 0 {
		t.Errorf("%s", e.message)
	}
	e.numbers(t, map[string]float64{"passed": 2, "deselected": 2, "not_run": 0})
}

func TestPytestIsStopped(t *testing.T) {
	needPytest(t)
	w := newEnv(t)
	write(t, "test_long.py", "import time\ndef test_1(): pass\ndef test_2():\n    open('begun', 'w').close()\n    time.sleep(600)\n")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(w.dir, "begun")); err == nil {
				stop()
			}
		}
	}()
	e := w.run(ctx, "test", `{"test_file": "test_long.py"}`)
	e.numbers(t, map[string]float64{"passed": 1, "errors": 1})
	if e.code != 143 {
		t.Errorf("%+v", e)
	}
}

func TestPytestIsMisused(t *testing.T) {
	needPytest(t)
	w := newEnv(t)
	write(t, "test_none.py", "x = 1\n")
	for input, words := range map[string][]string{
		`{"test_file": "test_other.py"}`:                                    {"bad_input", "test_other.py does not exist"},
		`{"test_file": "--help"}`:                                           {"bad_input", "write options in test_args"},
		`{"test_file": "test_none.py"}`:                                     {"bad_input", "found no tests"},
		`{"test_file": "test_none.py", "test_args": ["--batch-size", "4"]}`: {"bad_input", "unrecognized arguments: --batch-size"},
		`{"test_file": "test_none.py", "junit": "x.xml"}`:                   {"bad_input", "junit"},
	} {
		e := w.run(t.Context(), "test", input)
		e.failed(t, words[0], words[1])
	}
	t.Setenv("PATH", t.TempDir())
	e := w.run(t.Context(), "test", `{}`)
	e.failed(t, "dependency", "python: {packages: [pytest]}")
}

func TestPytestIsMissing(t *testing.T) {
	w := newEnv(t)
	bin := t.TempDir()
	write(t, filepath.Join(bin, "python3"), "#!/bin/sh\nexit 1\n") // as the question after a module that is not there ends
	if err := os.Chmod(filepath.Join(bin, "python3"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	e := w.run(t.Context(), "test", `{}`)
	e.failed(t, "dependency", "pytest is not installed", bin)
}

// The command's own words are run, its files are read, and what failed is run again.
func TestCommand(t *testing.T) {
	w := newEnv(t)
	write(t, "old.xml", `<testsuite><testcase name="of an earlier run"><failure/></testcase></testsuite>`)
	long := exec.CommandContext(t.Context(), "touch", "-d", "2020-01-01", "old.xml")
	if err := long.Run(); err != nil {
		t.Fatal(err)
	}
	write(t, "suite.sh", `
case "$*" in
"") cat > r/junit.xml <<-X
	<testsuites><testsuite name="s"><testcase classname="c" name="a b" time="0.5"/>
	<testcase classname="c" name="flaky"><failure message="once">at line 3</failure></testcase>
	<testcase classname="c" name="bad"><failure>always</failure></testcase></testsuite></testsuites>
	X
	exit 1 ;;
"flaky bad ^(flaky|bad)$") cat > r/junit.xml <<-X
	<testsuite name="s"><testcase classname="c" name="flaky"/>
	<testcase classname="c" name="bad"><failure>always</failure></testcase></testsuite>
	X
	exit 1 ;;
*) echo "with $*"; exit 9 ;;
esac
`)
	if err := os.Mkdir("r", 0o700); err != nil {
		t.Fatal(err)
	}
	w.words = []string{"sh", "suite.sh"}
	e := w.run(t.Context(), "test", `{"junit": ["r/*.xml", "old.xml"], "reruns": 2, "rerun_command": ["sh", "suite.sh", "{cases}", "{regex}"]}`)
	e.failed(t, "exit_code", "1 of 3 cases failed: c.bad")
	e.numbers(t, map[string]float64{"passed": 2, "failed": 1, "flaky": 1, "total": 3})

	e = w.run(t.Context(), "test", `{"junit": "r/none.xml"}`)
	e.failed(t, "artifact_missing", "r/none.xml", "exit status 1")
	e = w.run(t.Context(), "test", `{"test_args": ["other"]}`)
	e.failed(t, "exit_code", "exited with code 9")
	e = w.run(t.Context(), "test", `{"junit": "../x.xml"}`)
	e.failed(t, "bad_input", "input.junit")
	e = w.run(t.Context(), "test", `{"test_file": "x.py"}`)
	e.failed(t, "bad_input", "input.test_file")
	w.words = []string{"true"}
	if e = w.run(t.Context(), "test", `{}`); e.code != 0 {
		t.Errorf("%+v", e)
	}
}
