// Command testreport reads the output of go test -json, prints what go test prints without -json, and checks the tests
// that were skipped against a list.
//
//	go test -json ./... | testreport -run root [go test -json]
//
// If at most three tests failed, and nothing else, each is run again three times with the command that is given: alone, as
// the machine is busy with others before. Those that pass then are listed as flaky and are not an error.
//
// With CI=true it is an error if a test is skipped that the list does not allow, or if an entry of the list is stale: none of its tests
// was skipped although its package was tested. Otherwise skips are only counted.
//
// It exits with 1 if a test failed, a package did not end, no package was tested, or skips are an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	list := flag.String("skips", "test/skips.txt", "file with the list of tests that may be skipped")
	run := flag.String("run", "", "kind of this run: root, user, vm or packages")
	flag.Parse()
	if err := report(context.Background(), os.Stdin, os.Stdout, *list, *run, flag.Args(), os.Getenv("CI") == "true"); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

// report reads in and prints the report. Tests that failed are run again with a command, if there is one; strict makes
// unlisted skips and stale entries errors.
func report(ctx context.Context, in io.Reader, out io.Writer, list, run string, again []string, strict bool) error {
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
	if err := t.read(in); err != nil {
		return err
	}
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
