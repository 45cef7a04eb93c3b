package main

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// module stands before the paths of packages in the output of go test, and not in the list.
const module = "github.com/muster-dev/muster/"

func short(pkg string) string { return strings.TrimPrefix(pkg, module) }

// kinds are the kinds of runs that entries name.
var kinds = []string{"root", "user", "vm"}

// entry allows tests of one package to be skipped.
type entry struct {
	line  int
	pkg   string // without the module
	test  string // a pattern as in path.Match, or * for all
	maybe bool   // whether they are skipped depends on the machine: the entry is never out of date
}

// skipList are the entries for one kind of run.
type skipList []entry

// parseList reads the entries for a kind of run. A line is KINDS PACKAGE TEST REASON: KINDS are root, user, vm, with commas
// between them and each with a ? if it depends on the machine whether the test is skipped.
func parseList(r io.Reader, run string) (skipList, error) {
	if !slices.Contains(kinds, run) {
		return nil, fmt.Errorf("there are no runs of kind %q: -run is one of %s", run, strings.Join(kinds, ", "))
	}
	var list skipList
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		fields := strings.Fields(text)
		if len(fields) < 4 {
			return nil, fmt.Errorf("line %d: %q is not KINDS PACKAGE TEST REASON", n, text)
		}
		if _, err := path.Match(fields[2], ""); err != nil {
			return nil, fmt.Errorf("line %d: the pattern %q: %w", n, fields[2], err)
		}
		for kind := range strings.SplitSeq(fields[0], ",") {
			name, maybe := strings.CutSuffix(kind, "?")
			if !slices.Contains(kinds, name) {
				return nil, fmt.Errorf("line %d: there are no runs of kind %q", n, kind)
			}
			if name == run {
				list = append(list, entry{line: n, pkg: fields[1], test: fields[2], maybe: maybe})
			}
		}
	}
	return list, lines.Err()
}

func (e *entry) allows(s skip) bool {
	if short(s.pkg) != e.pkg {
		return false
	}
	match, _ := path.Match(e.test, s.test) // the pattern was checked
	return match || e.test == "*"
}

// check returns the skips that no entry allows, and the entries that are out of date.
func (l skipList) check(t *tally) (unlisted []skip, stale []entry) {
	used := make([]bool, len(l))
	for _, s := range t.skipped {
		found := false
		for i := range l {
			if l[i].allows(s) {
				used[i], found = true, true
			}
		}
		if !found {
			unlisted = append(unlisted, s)
		}
	}
	for i, e := range l {
		if !used[i] && !e.maybe && t.passed[module+e.pkg] {
			stale = append(stale, e)
		}
	}
	return unlisted, stale
}
