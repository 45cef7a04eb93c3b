package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// maxReruns is how many tests may have failed for a rerun: more are not bad luck.
const maxReruns = 3

// rerunCount is how often each has to pass.
const rerunCount = 3

// failure is a test of a package that failed.
type failure struct{ pkg, test string }

// failedTests returns the tests without subtests that failed in a package that ended. It is false if the package failed in
// another way too: a test that did not end, a panic, a failure outside of tests.
func (p *results) failedTests(pkg string) (failed []failure, ok bool) {
	for _, test := range p.order {
		switch p.state[test] {
		case "pass", "skip":
		case "fail":
			if !strings.Contains(test, "/") {
				failed = append(failed, failure{pkg, test})
			}
		default:
			return nil, false
		}
	}
	return failed, len(failed) > 0
}

// rerun runs the tests that failed again, each alone, with a command that is like "go test -json -race". It reports whether
// all of them pass then; they are flaky and listed. Nothing is run again if a package failed in another way.
func rerun(ctx context.Context, t *summary, out io.Writer, command []string) bool {
	if len(command) == 0 || t.broken || len(t.unfinished()) > 0 || len(t.failures) == 0 || len(t.failures) > maxReruns {
		return false
	}
	for _, f := range t.failures {
		fmt.Fprintf(out, "%s of %s failed: running it %d times, alone\n", f.test, trimModule(f.pkg), rerunCount)
		for range rerunCount {
			if !passes(ctx, out, command, f) {
				fmt.Fprintf(out, "%s of %s fails again\n", f.test, trimModule(f.pkg))
				return false
			}
		}
	}
	for _, f := range t.failures {
		fmt.Fprintf(out, "FLAKY: %s of %s failed beside other tests and passes alone; make it pass always\n", f.test, trimModule(f.pkg))
	}
	return true
}

// passes runs one test alone, prints what go test prints, and reports whether it passed.
func passes(ctx context.Context, out io.Writer, command []string, f failure) bool {
	args := slices.Concat(command[1:], []string{"-count", "1", "-run", "^" + regexp.QuoteMeta(f.test) + "$", f.pkg})
	cmd := exec.CommandContext(ctx, command[0], args...) // the command that the caller has run before
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return false
	}
	again := newSummary(out)
	err = again.read(stdout)
	return errors.Join(err, cmd.Wait()) == nil && !again.failed && len(again.unfinished()) == 0 && again.tested == 1
}
