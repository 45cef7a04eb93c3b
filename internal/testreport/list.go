package main

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
)

// module is the prefix of package paths in the output of go test; the list omits it.
const module = "github.com/muster-dev/muster/"

func trimModule(pkg string) string { return strings.TrimPrefix(pkg, module) }

// kinds are the kinds of runs that entries name.
var kinds = []string{"root", "user", "vm", "packages"}

// entry allows tests to be skipped.
type entry struct {
	line     int
	pkg      string // without the module, or * for all
	test     string // a pattern as in path.Match, or * for all
	message  string // a part of the reason of the skip
	optional bool   // whether they are skipped depends on the machine: the entry is never stale
}

// skipList are the entries for one kind of run.
type skipList []entry

// linePattern is KINDS PACKAGE TEST REASON, separated by spaces; TEST may be a quoted text.
var linePattern = regexp.MustCompile(`^(\S+)\s+(\S+)\s+("[^"]+"|[^\s"]+)\s+(\S.*)$`)

// parseList parses the entries for a kind of run. KINDS of a line are root, user, vm, packages, separated by commas, each with a ? if it depends
// on the machine whether the test is skipped.
func parseList(r io.Reader, run string) (skipList, error) {
	if !slices.Contains(kinds, run) {
		return nil, fmt.Errorf("unknown kind of run %q: set -run to one of %s", run, strings.Join(kinds, ", "))
	}
	var list skipList
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		m := linePattern.FindStringSubmatch(text)
		if m == nil {
			return nil, fmt.Errorf("line %d: %q is not KINDS PACKAGE TEST REASON", n, text)
		}
		e := entry{line: n, pkg: m[2], test: m[3]}
		if message, ok := strings.CutPrefix(e.test, `"`); ok {
			e.test, e.message = "*", strings.TrimSuffix(message, `"`)
		}
		if _, err := path.Match(e.test, ""); err != nil {
			return nil, fmt.Errorf("line %d: the pattern %q: %w", n, e.test, err)
		}
		for kind := range strings.SplitSeq(m[1], ",") {
			name, optional := strings.CutSuffix(kind, "?")
			if !slices.Contains(kinds, name) {
				return nil, fmt.Errorf("line %d: unknown kind of run %q", n, kind)
			}
			if name == run {
				e.optional = optional || e.pkg == "*" // each run tests some packages only
				list = append(list, e)
			}
		}
	}
	return list, lines.Err()
}

func (e *entry) allows(s skip) bool {
	if e.pkg != "*" && e.pkg != trimModule(s.pkg) || !strings.Contains(s.reason, e.message) {
		return false
	}
	match, _ := path.Match(e.test, s.test) // the pattern was checked
	return match || e.test == "*"
}

// check returns the skips that no entry allows, and stale entries.
func (l skipList) check(t *summary) (unlisted []skip, stale []entry) {
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
		if !used[i] && !e.optional && t.passed[module+e.pkg] {
			stale = append(stale, e)
		}
	}
	return unlisted, stale
}
