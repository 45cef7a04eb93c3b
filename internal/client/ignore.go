package client

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
)

// IgnoreFile is the name of the file, at the top of a folder, with patterns of files not
// to upload. Its syntax is that of .gitignore: one pattern per line, # begins a comment,
// ! negates, a trailing / matches folders only, any other / anchors the pattern to the
// top, and ** matches any number of folders.
const IgnoreFile = ".musterignore"

// alwaysIgnored are never uploaded, at any level.
var alwaysIgnored = []string{".git", ".muster"}

// ignoreRules decides which paths to skip. The last matching rule wins.
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

// match reports whether to skip a path, slash-separated and relative. If it matches a
// folder, the caller skips the folder's content, too.
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
// open[n] is true if the pattern parts so far match parts[:n].
func matchParts(pattern, parts []string) bool {
	open := make([]bool, len(parts)+1)
	open[0] = true
	for i, p := range pattern {
		if p == "**" {
			reached := false
			for n, prev := range open {
				// At the end it matches one part or more: "a/**" is the content of a.
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
