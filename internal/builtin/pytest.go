package builtin

import (
	"context"
	_ "embed" // the plugin
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

//go:embed muster_pytest.py
var plugin []byte

// Exit codes of pytest without a verdict on the tests.
const (
	pytestUsage   = 4
	pytestNothing = 5
)

// pytestHint is what to do if pytest is not installed.
const pytestHint = "use an environment with pytest: muster run --python-package pytest, or python: {packages: [pytest]} in the stage"

type pluginEvent struct {
	Event    string  `json:"event"`
	ID       string  `json:"id"`
	Count    int     `json:"count"`
	When     string  `json:"when"`
	Outcome  string  `json:"outcome"`
	Duration float64 `json:"duration"`
	Message  string  `json:"message"`
}

type session struct {
	add        func(*testCase) error
	onProgress func(done, of int, id string)
	root       string // to which IDs are relative
	total      int    // cases; 0 if unknown
	deselected int    // cases that options exclude
	done       int
	running    map[string]*testCase
	order      []string // of running
	err        error    // of add
}

// runPytest runs pytest, and reruns failed cases.
func (s *suite) runPytest(ctx context.Context) error {
	if len(s.in.JUnit) > 0 || len(s.in.RerunCommand) > 0 {
		return failf(muster.BadInput, "input: junit and rerun_command need a command, behind -- on the command line or in run: omit them, pytest reports its cases itself")
	}
	for _, f := range s.in.TestFile {
		name, _, _ := strings.Cut(f, "::")
		if strings.HasPrefix(name, "-") {
			return failf(muster.BadInput, "input.test_file: %q is not a file: write options in test_args", f)
		}
		if _, err := os.Stat(filepath.FromSlash(name)); errors.Is(err, fs.ErrNotExist) {
			return failf(muster.BadInput, "input.test_file: %s does not exist in the task's folder: add its directory with muster run --files DIR, or files in the stage", name)
		}
	}
	python, err := s.python(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pytest-")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "muster_pytest.py"), plugin, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot write pytest's plugin: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in the task's own folder
	args := slices.Clone(s.in.TestArgs)
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--junit-xml") || strings.HasPrefix(a, "--junitxml") }) {
		args = append(args, "--junitxml="+filepath.Join(s.t.outDir, "junit.xml"))
	}
	root, run, err := s.runSession(ctx, dir, python, append(args, s.in.TestFile...), s.add)
	s.notRun, s.deselected = run.notRun(), run.deselected
	if err == nil && s.pytestCode != 0 && len(s.failing()) == 0 { // such as with --cov-fail-under
		return failf(muster.ExitCode, "no case failed, but pytest exited with code %d: see its log", s.pytestCode)
	}
	for i := 1; err == nil && i <= s.in.Reruns && ctx.Err() == nil; i++ {
		failing := s.failing()
		if len(failing) == 0 {
			break
		}
		if len(failing) > maxReruns {
			_, _ = fmt.Fprintf(s.t.stdout, "%d cases failed: too many to rerun\n", len(failing))
			break
		}
		s.logRerun(len(failing), i)
		err = s.rerunPytest(ctx, dir, python, root, failing)
	}
	return err
}

// python returns an interpreter that has pytest.
func (s *suite) python(ctx context.Context) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		python, err = exec.LookPath("python")
	}
	if err != nil {
		return "", failf(muster.Dependency, "Python is not installed: "+pytestHint)
	}
	probe := exec.CommandContext(ctx, python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('pytest') is None)")
	probe.Stderr = s.t.stderr
	if probe.Run() != nil {
		return "", errors.Join(ctx.Err(), failf(muster.Dependency,
			"pytest is not installed for %s: %s", python, pytestHint))
	}
	return python, nil
}

func (s *suite) rerunPytest(ctx context.Context, dir, python, root string, failing []int) error {
	args := slices.Clone(s.in.TestArgs)
	for _, i := range failing {
		args = append(args, filepath.Join(root, filepath.FromSlash(s.cases[i].ID)))
	}
	_, _, err := s.runSession(ctx, dir, python, args, func(c *testCase) error {
		if i, ok := s.index[c.ID]; ok && slices.Contains(failing, i) {
			s.cases[i].addRetry(c)
		}
		return nil
	})
	return err
}

// runSession runs pytest once, and calls add for each case when it ends. root is the directory to which IDs are relative.
func (s *suite) runSession(ctx context.Context, dir, python string, args []string, add func(*testCase) error) (root string, run *session, err error) {
	run = &session{add: add, running: map[string]*testCase{}}
	f, err := os.CreateTemp(dir, "events-")
	if err != nil {
		return "", run, fmt.Errorf("cannot create the output file of pytest's plugin: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	run.onProgress = func(done, total int, id string) {
		fraction := -1.0
		if total > 0 {
			fraction = float64(done) / float64(total)
		}
		s.t.progress.report(fraction, id, map[string]float64{"cases": float64(done), "failed": float64(len(s.failing()))})
	}
	stop := followLines(f, run.handleLine)
	argv := append([]string{python, "-m", "pytest", "-p", "muster_pytest"}, args...)
	env := []string{"MUSTER_PYTEST=" + f.Name(), "PYTHONPATH=" + strings.TrimSuffix(dir+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"), string(os.PathListSeparator))}
	tail := &tailWriter{w: s.t.stderr}
	state, err := s.runProcess(ctx, argv, tail, env)
	stop()
	if err != nil {
		return "", run, err
	}
	run.failUnfinished(ctx, state)
	if run.err != nil {
		return "", run, run.err
	}
	s.pytestCode = state.ExitCode()
	switch code := s.pytestCode; {
	case ctx.Err() != nil:
		return run.root, run, ctx.Err()
	case code == pytestUsage:
		return "", run, failf(muster.BadInput, "pytest refuses its arguments: %s", tail.errorLine())
	case code == pytestNothing && run.done == 0 && run.deselected > 0:
		return "", run, failf(muster.BadInput, "pytest found %d cases, but its options exclude all of them: check -k, -m and --deselect in test_args and in the project's configuration", run.deselected)
	case code == pytestNothing && run.done == 0:
		return "", run, failf(muster.BadInput, "pytest found no tests: name them test_… in files test_….py, or set test_file")
	case code > pytestNothing || code == 3 || code != 0 && run.done == 0:
		return "", run, failf(muster.ExitCode, "pytest failed (%s): %s", state, tail.errorLine())
	case code < 0 && len(s.failing()) == 0:
		return "", run, failf(muster.ExitCode, "pytest was killed by a signal (%s) after %d cases", state, run.done)
	}
	return run.root, run, nil
}

// notRun returns how many collected cases did not run.
func (r *session) notRun() int { return max(r.total-r.done, 0) }

func (r *session) handleLine(line []byte) {
	var l pluginEvent
	if json.Unmarshal(line, &l) != nil {
		return // truncated by a crash
	}
	switch l.Event {
	case "begin":
		r.root = l.ID
	case "deselected":
		r.deselected += l.Count
	case "collected":
		r.total = r.done + l.Count // done are those that failed to collect
		r.onProgress(r.done, r.total, fmt.Sprintf("%d cases", l.Count))
	case "uncollected":
		r.finishCase(&testCase{ID: l.ID, Name: l.ID, File: l.ID, Outcome: errored, Message: shorten("cannot collect it: "+l.Message, maxMessage)})
	case "start":
		r.startCase(l.ID)
		r.onProgress(r.done, r.total, l.ID)
	case "report":
		r.handleReport(&l)
	}
}

func (r *session) startCase(id string) *testCase {
	if c := r.running[id]; c != nil {
		return c
	}
	file, name, _ := strings.Cut(id, "::")
	c := &testCase{ID: id, Name: name, File: file}
	r.running[id] = c
	r.order = append(r.order, id)
	return c
}

// handleReport processes one of a case's three reports: of its setup, its call and its teardown.
func (r *session) handleReport(l *pluginEvent) {
	c := r.startCase(l.ID)
	c.Duration += l.Duration
	outcome := map[string]string{"passed": passed, "skipped": skipped, "failed": failed}[l.Outcome]
	switch {
	case l.Outcome == "rerun": // by pytest-rerunfailures, in the same session
		c.Outcome, c.Message, c.Flaky, c.Tries = "", "", true, max(c.Tries, 1)+1
		return
	case outcome == failed && l.When != "call":
		outcome = errored
	}
	if c.Outcome == "" || c.Outcome == passed && outcome != passed {
		if l.When != "setup" || outcome != passed {
			c.Outcome, c.Message = outcome, shorten(l.Message, maxMessage)
		}
	}
	if l.When != "teardown" {
		return
	}
	if c.Outcome == "" {
		c.Outcome = errored
	}
	c.Flaky = c.Flaky && c.Outcome == passed
	r.finishCase(c)
}

func (r *session) finishCase(c *testCase) {
	delete(r.running, c.ID)
	r.done++
	if err := r.add(c); err != nil && r.err == nil {
		r.err = err
	}
	r.onProgress(r.done, r.total, "")
}

func (r *session) failUnfinished(ctx context.Context, state *os.ProcessState) {
	reason := fmt.Sprintf("pytest exited during the test: %s", state)
	if ctx.Err() != nil {
		reason = "the task was stopped during the test"
	}
	for _, id := range r.order {
		if c := r.running[id]; c != nil {
			c.Outcome, c.Message = errored, reason
			r.finishCase(c)
		}
	}
}

// tailWriter copies its input, and stores the end of it.
type tailWriter struct {
	w   io.Writer
	buf []byte
}

const maxTail = 4 << 10

// Write implements io.Writer.
func (t *tailWriter) Write(b []byte) (int, error) {
	t.buf = append(t.buf, b...)
	if n := len(t.buf) - maxTail; n > 0 {
		t.buf = append(t.buf[:0], t.buf[n:]...)
	}
	return t.w.Write(b)
}

// errorLine returns the first line with an error in the format of pytest or argparse, else the last line.
func (t *tailWriter) errorLine() string {
	last := "see its log"
	for line := range strings.Lines(string(t.buf)) {
		line = strings.TrimSpace(line)
		if _, text, ok := strings.Cut(line, ": error: "); ok {
			return text
		}
		if text, ok := strings.CutPrefix(line, "ERROR: "); ok && !strings.HasPrefix(text, "usage: ") {
			return text
		}
		if line != "" {
			last = line
		}
	}
	return last
}
