// Command testreport runs go test -json, prints what go test prints without -json, and checks the tests that were skipped
// against a list.
//
//	testreport -run root go test -json -- ./internal/...
//	go test -json ./... | testreport -run root
//
// The command is run with the packages after the last "--" as its further arguments. If at most three tests failed, and nothing
// else, each is run again three times with the command: alone, as the machine is busy with others before. Those that pass then are
// listed as flaky and are not an error. Without a command the output is read from standard input, and no test is run again.
//
// With CI=true it is an error if a test is skipped that the list does not allow, or if an entry of the list is stale: none of its tests
// was skipped although its package was tested. Otherwise skips are only counted.
//
// It exits with 1 if a test failed, a package did not end, no package was tested, the command failed in another way, or skips are an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

func main() {
	list := flag.String("skips", "test/skips.txt", "file with the list of tests that may be skipped")
	run := flag.String("run", "", "kind of this run: root, user, vm or packages")
	flag.Parse()
	err := report(context.Background(), source{os.Stdin, flag.Args()}, os.Stdout, *list, *run, os.Getenv("CI") == "true")
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

// source is where the output of go test -json comes from: a command with packages after "--", or in if there is none.
type source struct {
	in   io.Reader
	args []string
}

// command returns the command without and with its packages, both empty if there is none.
func (s source) command() (bare, whole []string) {
	for i, arg := range slices.Backward(s.args) {
		if arg == "--" {
			return s.args[:i], slices.Concat(s.args[:i], s.args[i+1:])
		}
	}
	return s.args, s.args
}

// read passes the output to t. It returns an error if the command failed although no test did, or not as go test does.
func (s source) read(ctx context.Context, t *summary) error {
	_, whole := s.command()
	if len(whole) == 0 {
		return t.read(s.in)
	}
	cmd := exec.CommandContext(ctx, whole[0], whole[1:]...) // the caller's
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = t.read(stdout)
	ended := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](ended); ok && exit.ExitCode() == 1 && t.failed {
		ended = nil
	}
	return errors.Join(err, ended)
}

// report reads the output of go test and prints the report. Tests that failed are run again if there is a command; strict makes
// unlisted skips and stale entries errors.
func report(ctx context.Context, from source, out io.Writer, list, run string, strict bool) error {
	f, err := os.Open(list)
	if err != nil {
		return err
	}
	defer f.Close()
	allowed, err := parseList(f, run)
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	t := newSummary(out)
	if err := from.read(ctx, t); err != nil {
		return err
	}
	again, _ := from.command()
	unlisted, stale := allowed.check(t)
	if n := len(t.skipped); n > 0 {
		fmt.Fprintf(out, "%d tests were skipped, %d of them not on the list\n", n, len(unlisted))
	}
	if !strict {
		unlisted, stale = nil, nil
	}
	for _, s := range unlisted {
		fmt.Fprintf(out, "skipped, and not in %s for %s: %s %s: %s\n", list, run, trimModule(s.pkg), s.test, s.reason)
	}
	for _, e := range stale {
		fmt.Fprintf(out, "%s:%d: delete this entry: no test of %s is skipped for it in a run of kind %s\n", list, e.line, e.pkg, run)
	}
	switch {
	case len(t.unfinished()) > 0:
		return fmt.Errorf("the tests of %v did not finish", t.unfinished())
	case t.failed && !rerun(ctx, t, out, again):
		return errors.New("tests failed")
	case t.tested == 0:
		return errors.New("no package was tested")
	case len(unlisted)+len(stale) > 0:
		return fmt.Errorf("%d tests were skipped without being on the list, and %d entries of it are stale", len(unlisted), len(stale))
	}
	return nil
}
