package client

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// IgnoreFile is the name of the file, at the top of a folder, that says what of
// the folder stays at home. Its form is that of .gitignore: one pattern a line, # begins a
// comment, ! takes back, a / at the end means folders only, a / elsewhere ties the
// pattern to the top, and ** stands for any number of folders.
const IgnoreFile = ".musterignore"

// alwaysIgnored never travel, wherever they are.
var alwaysIgnored = []string{".git", ".muster"}

// ignoreRules decides which paths stay at home. The last rule that matches decides.
type ignoreRules struct{ rules []ignoreRule }

type ignoreRule struct {
	parts   []string // of the pattern; "**" matches any number of parts
	negate  bool
	dirOnly bool
}

// parseIgnore reads an ignore file.
func parseIgnore(data []byte) (*ignoreRules, error) {
	ig := &ignoreRules{}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		r, ok := parseRule(strings.TrimRight(string(line), " \t\r\n"))
		if !ok {
			continue
		}
		for _, p := range r.parts {
			if _, err := path.Match(p, ""); err != nil {
				return nil, muster.Errorf(muster.Invalid, "%s line %d: %q is not a pattern: %w", IgnoreFile, n, p, err)
			}
		}
		ig.rules = append(ig.rules, r)
	}
	return ig, nil
}

func parseRule(line string) (ignoreRule, bool) {
	var r ignoreRule
	if line == "" || line[0] == '#' {
		return r, false
	}
	line, r.negate = strings.CutPrefix(line, "!")
	line = strings.TrimPrefix(line, `\`) // an escaped # or !
	line, r.dirOnly = strings.CutSuffix(line, "/")
	anchored := strings.Contains(line, "/")
	line = strings.Trim(line, "/")
	if line == "" {
		return r, false
	}
	r.parts = strings.Split(line, "/")
	if !anchored {
		r.parts = append([]string{"**"}, r.parts...)
	}
	return r, true
}

// match reports whether the path, slash-separated and relative, stays at home.
// That of a folder must be asked before those of what is in it.
func (ig *ignoreRules) match(name string, dir bool) bool {
	parts := strings.Split(name, "/")
	if slices.Contains(alwaysIgnored, parts[len(parts)-1]) {
		return true
	}
	ignored := false
	for _, r := range ig.rules {
		if r.negate == ignored && (dir || !r.dirOnly) && matchParts(r.parts, parts) {
			ignored = !r.negate
		}
	}
	return ignored
}

// matchParts matches pattern parts with path parts in O(len(pattern)·len(parts)):
// open says which beginnings of parts the pattern so far can stand for.
func matchParts(pattern, parts []string) bool {
	open := make([]bool, len(parts)+1)
	open[0] = true
	for i, p := range pattern {
		if p == "**" {
			reached := false
			for n, prev := range open {
				// At the end it stands for one folder or more: "a/**" is what is in a.
				open[n] = reached || prev && i < len(pattern)-1
				reached = reached || prev
			}
			continue
		}
		for n := len(parts); n > 0; n-- {
			ok, err := path.Match(p, parts[n-1])
			open[n] = open[n-1] && ok && err == nil
		}
		open[0] = false
	}
	return open[len(parts)]
}
