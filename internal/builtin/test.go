package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/muster-dev/muster"
)

type testInput struct {
	TestFile     stringOrList `json:"test_file"`
	TestArgs     []string     `json:"test_args"`
	JUnit        stringOrList `json:"junit"`
	Reruns       int          `json:"reruns"`
	RerunCommand []string     `json:"rerun_command"`
	MaxFailed    int          `json:"max_failed"`
}

// stringOrList is a list of strings; JSON may have a single string instead.
type stringOrList []string

// UnmarshalJSON implements json.Unmarshaler.
func (o *stringOrList) UnmarshalJSON(b []byte) error {
	var single string
	if json.Unmarshal(b, &single) == nil {
		*o = stringOrList{single}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(o))
}

type testResult struct {
	Passed  int `json:"passed"` // including flaky ones
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
	Errors  int `json:"errors"` // without a verdict
	Flaky   int `json:"flaky"`
	Total   int `json:"total"`
	NotRun  int `json:"not_run,omitempty"` // collected by pytest or counted in a JUnit file, but without a result
	// Deselected is how many cases pytest collected and its options excluded.
	Deselected int        `json:"deselected,omitempty"`
	Duration   float64    `json:"duration"` // seconds, of the whole run
	ExitCode   *int       `json:"exit_code,omitempty"`
	Cases      []testCase `json:"cases"`
	LeftOut    int        `json:"cases_left_out,omitempty"` // of Cases; cases.jsonl has all
}

const (
	maxListed        = 160 << 10 // bytes of cases in the result
	maxListedMessage = 500       // bytes of a message there
	maxReruns        = 500       // failed cases: with more, flakiness is not the cause
	maxNamedCases    = 5         // in the message of the failure
	saveInterval     = 5 * time.Second
)

type suite struct {
	t          *task
	in         *testInput
	start      time.Time
	cases      []testCase
	index      map[string]int // of cases by ID
	lines      *jsonlWriter
	savedAt    time.Time // when the result was last written
	exitCode   *int
	pytestCode int // of the last run of pytest
	notRun     int
	deselected int
}

func test(ctx context.Context, t *task) (any, error) {
	in := &testInput{}
	if err := t.decodeInput(in); err != nil {
		return nil, err
	}
	s := &suite{t: t, in: in, start: time.Now(), index: map[string]int{}}
	s.savedAt = s.start
	var err error
	if s.lines, err = t.createJSONL("cases.jsonl"); err != nil {
		return nil, err
	}
	defer func() { _ = s.lines.close() }() // add reports errors
	if len(t.command) > 0 {
		err = s.runTestCommand(ctx)
	} else {
		err = s.runPytest(ctx)
	}
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	r := s.result()
	if err == nil {
		err = s.evaluate(r)
	}
	return r, errors.Join(err, s.rewriteCases())
}

func (s *suite) add(c *testCase) error {
	if i, ok := s.index[c.ID]; ok {
		s.cases[i] = mergeCases(&s.cases[i], c)
	} else if len(s.cases) == maxCases {
		return failf(muster.BadInput, "more than %d cases: split them into several tasks", maxCases)
	} else {
		s.index[c.ID] = len(s.cases)
		s.cases = append(s.cases, *c)
	}
	if err := s.lines.write(c); err != nil {
		return err
	}
	if time.Since(s.savedAt) > saveInterval { // so that there is a result if the task is killed
		s.savedAt = time.Now()
		return s.t.writeResult(s.result())
	}
	return nil
}

// mergeCases merges two reports with one ID, such as of two test files with the same names.
func mergeCases(a, b *testCase) testCase {
	c := *a
	order := []string{skipped, passed, failed, errored}
	if slices.Index(order, b.Outcome) > slices.Index(order, a.Outcome) {
		c = *b
	}
	c.Duration = a.Duration + b.Duration
	return c
}

// rewriteCases replaces cases.jsonl by the final cases; without cases it is removed.
func (s *suite) rewriteCases() error {
	if len(s.cases) == 0 {
		return os.Remove(filepath.Join(s.t.outDir, "cases.jsonl"))
	}
	var b []byte
	for i := range s.cases {
		line, err := json.Marshal(&s.cases[i])
		if err != nil {
			return fmt.Errorf("cases.jsonl: %w", err)
		}
		b = append(append(b, line...), '\n')
	}
	return s.t.writeFile("cases.jsonl", b)
}

func (s *suite) logRerun(n, try int) {
	noun := "1 failed case"
	if n != 1 {
		noun = fmt.Sprintf("%d failed cases", n)
	}
	_, _ = fmt.Fprintf(s.t.stdout, "rerunning %s, %d of %d\n", noun, try, s.in.Reruns)
}

func (s *suite) failing() (indexes []int) {
	for i := range s.cases {
		if o := s.cases[i].Outcome; o == failed || o == errored {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

func (s *suite) result() *testResult {
	r := &testResult{Total: len(s.cases), NotRun: s.notRun, Deselected: s.deselected, Duration: time.Since(s.start).Seconds(), ExitCode: s.exitCode, Cases: []testCase{}}
	counts := map[string]int{}
	for i := range s.cases {
		c := &s.cases[i]
		counts[c.Outcome]++
		if c.Flaky && c.Outcome == passed {
			r.Flaky++
		}
	}
	r.Passed, r.Failed, r.Skipped, r.Errors = counts[passed], counts[failed], counts[skipped], counts[errored]
	// Failed ones come first if there is not enough space for all.
	size, chosen := 0, make([]bool, len(s.cases))
	for _, failedFirst := range []bool{true, false} {
		for i := range s.cases {
			c := &s.cases[i]
			if failedFirst != (c.Outcome == failed || c.Outcome == errored || c.Flaky) {
				continue
			}
			n := len(c.ID) + len(c.Name) + len(c.File) + min(len(c.Message), maxListedMessage)
			if size += 2*n + 120; size > maxListed { // twice: JSON escapes
				break
			}
			chosen[i] = true
		}
	}
	for i := range s.cases {
		if !chosen[i] {
			r.LeftOut++
			continue
		}
		c := s.cases[i]
		c.Message = shorten(c.Message, maxListedMessage)
		r.Cases = append(r.Cases, c)
	}
	return r
}

// evaluate returns why a complete run failed.
func (s *suite) evaluate(r *testResult) error {
	if count := r.Failed + r.Errors; count > s.in.MaxFailed {
		var names []string
		for _, i := range s.failing() {
			if len(names) == maxNamedCases {
				names = append(names, "…")
				break
			}
			names = append(names, shorten(s.cases[i].ID, 120))
		}
		rest := ""
		if r.NotRun > 0 {
			rest = fmt.Sprintf("; %d more were not run", r.NotRun)
		}
		return failf(muster.ExitCode, "%d of %d cases failed: %s%s", count, r.Total, strings.Join(names, ", "), rest)
	}
	if r.Failed+r.Errors == 0 && s.exitCode != nil && *s.exitCode != 0 {
		if r.Total == 0 {
			return failf(muster.ExitCode, "the command exited with code %d", *s.exitCode)
		}
		return failf(muster.ExitCode, "no case failed, but the command exited with code %d", *s.exitCode)
	}
	if r.NotRun > 0 && s.exitCode == nil { // with a command, its exit code decides
		return failf(muster.ExitCode, "%d of %d cases did not run, because pytest exited before: omit options that stop it, such as -x, --maxfail and --collect-only", r.NotRun, r.NotRun+r.Total)
	}
	return nil
}

// runTestCommand runs the stage's command, and reruns failed cases.
func (s *suite) runTestCommand(ctx context.Context) error {
	if len(s.in.TestFile) > 0 {
		return failf(muster.BadInput, "input.test_file is for pytest, but the task has a command: omit one of them")
	}
	for i, pattern := range s.in.JUnit {
		clean := strings.TrimPrefix(pattern, "./")
		if path.IsAbs(clean) || slices.Contains(strings.Split(clean, "/"), "..") || !doublestar.ValidatePattern(clean) {
			return failf(muster.BadInput, "input.junit: %q is not a path or pattern in the task's folder", pattern)
		}
		s.in.JUnit[i] = clean
	}
	words := slices.Concat(s.t.command, s.in.TestArgs)
	code, err := s.execute(ctx, words)
	if err != nil {
		return err
	}
	s.exitCode = &code
	for i := 1; i <= s.in.Reruns && ctx.Err() == nil; i++ {
		failing := s.failing()
		switch {
		case len(failing) == 0 && (code == 0 || len(s.cases) > 0):
			return nil
		case len(failing) > maxReruns:
			_, _ = fmt.Fprintf(s.t.stdout, "%d cases failed: too many to rerun\n", len(failing))
			return nil
		}
		rerun := words
		if len(s.in.RerunCommand) > 0 && len(failing) > 0 {
			rerun = s.rerunArgs(failing)
		}
		s.logRerun(len(failing), i)
		first := s.cases
		s.cases, s.index = nil, map[string]int{}
		notRun := s.notRun
		code, err = s.execute(ctx, rerun)
		s.merge(first)
		s.notRun = notRun
		if err != nil {
			return err
		}
		if len(s.failing()) == 0 { // else the exit code of the first run counts
			s.exitCode = &code
		}
	}
	return nil
}

// merge merges the cases of a rerun into those of the first run.
func (s *suite) merge(first []testCase) {
	reruns := map[string]*testCase{}
	for i := range s.cases {
		reruns[s.cases[i].ID] = &s.cases[i]
	}
	s.index = map[string]int{}
	for i := range first {
		c := &first[i]
		s.index[c.ID] = i
		if latest := reruns[c.ID]; latest != nil && (c.Outcome == failed || c.Outcome == errored) {
			c.addRetry(latest)
		}
	}
	s.cases = first
}

// addRetry updates a failed case with the result of its rerun.
func (c *testCase) addRetry(latest *testCase) {
	c.Tries = max(c.Tries, 1) + 1
	c.Duration += latest.Duration
	if latest.Outcome == passed {
		c.Outcome, c.Flaky = passed, true // the message stays that of its failure
		return
	}
	c.Outcome, c.Message = latest.Outcome, latest.Message
}

func (s *suite) rerunArgs(failing []int) (words []string) {
	var names, quoted []string
	for _, i := range failing {
		names = append(names, s.cases[i].Name)
		quoted = append(quoted, regexp.QuoteMeta(s.cases[i].Name))
	}
	pattern := "^(" + strings.Join(quoted, "|") + ")$"
	for _, w := range s.in.RerunCommand {
		if w == "{cases}" {
			words = append(words, names...)
			continue
		}
		words = append(words, strings.ReplaceAll(w, "{regex}", pattern))
	}
	return words
}

func (s *suite) execute(ctx context.Context, words []string) (int, error) {
	s.t.progress.report(-1, "running the tests", nil)
	start := time.Now().Add(-time.Second) // some file systems have coarse times
	state, err := s.runProcess(ctx, words, s.t.stderr, nil)
	if err != nil {
		return 0, err
	}
	found, err := s.readJUnitFiles(start)
	if err != nil {
		return 0, err
	}
	if len(s.in.JUnit) > 0 && found == 0 && ctx.Err() == nil {
		return 0, failf(muster.ArtifactMissing, "no file of this run matches junit (%s), and the command ended with %s", strings.Join(s.in.JUnit, ", "), state)
	}
	s.t.progress.report(1, "", map[string]float64{"cases": float64(len(s.cases)), "failed": float64(len(s.failing()))})
	return state.ExitCode(), nil
}

func (s *suite) runProcess(ctx context.Context, words []string, stderr io.Writer, env []string) (*os.ProcessState, error) {
	cmd := newCommand(words, s.t.stdout, stderr)
	cmd.Env = append(os.Environ(), env...)
	stopSignal, err := startCommand(ctx, cmd)
	if err != nil {
		return nil, err
	}
	defer stopSignal()
	if err := cmd.Wait(); cmd.ProcessState == nil {
		return nil, fmt.Errorf("cannot wait for %s: %w", words[0], err)
	}
	return cmd.ProcessState, nil
}

// readJUnitFiles reads the files that match and were written since a time, and returns how many there are.
func (s *suite) readJUnitFiles(since time.Time) (int, error) {
	seen := map[string]bool{}
	root := os.DirFS(".")
	for _, pattern := range s.in.JUnit {
		names, err := doublestar.Glob(root, pattern, doublestar.WithNoFollow(), doublestar.WithFilesOnly())
		if err != nil {
			return 0, failf(muster.BadInput, "input.junit: invalid pattern %q: %w", pattern, err)
		}
		for _, name := range names {
			if seen[name] {
				continue
			}
			info, err := fs.Stat(root, name)
			if err != nil || info.ModTime().Before(since) {
				_, _ = fmt.Fprintf(s.t.stdout, "ignoring %s: it is older than this run\n", name)
				continue
			}
			seen[name] = true
			if err := s.readFile(root, name); err != nil {
				return 0, err
			}
		}
	}
	return len(seen), nil
}

func (s *suite) readFile(root fs.FS, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	cases, missing, err := readJUnit(f)
	if s.notRun += missing; missing > 0 {
		_, _ = fmt.Fprintf(s.t.stderr, "%s counts %d cases more than it contains: they are not_run in the result\n", name, missing)
	}
	for i := range cases {
		if err := s.add(&cases[i]); err != nil {
			return err
		}
	}
	switch {
	case err == nil:
		return nil
	case len(cases) > 0:
		_, _ = fmt.Fprintf(s.t.stderr, "%s: %v; the cases before that count\n", name, err)
		return s.add(&testCase{ID: name, Name: name, File: name, Outcome: errored, Message: err.Error()})
	}
	return failf(muster.BadInput, "%s: %w", name, err)
}
