package work

import (
	"slices"

	"github.com/muster-dev/muster"
)

// kinds lists those that a worker can take.
var kinds = []string{muster.KindNoop, muster.KindProcess, muster.KindScript, muster.KindContainer}

// Kind reads an entry of Config.Kinds.
func Kind(s string) (string, error) {
	if slices.Contains(kinds, s) {
		return s, nil
	}
	hint := ""
	if near := muster.Nearest(s, kinds); near != "" {
		hint = " (did you mean " + near + "?)"
	}
	return "", muster.Errorf(muster.Invalid, "there is no kind %s%s: write noop, process, script or container", s, hint)
}

// takes reports whether the operator lets the worker take a kind.
func (c *Config) takes(kind string) bool { return c.Kinds == nil || slices.Contains(c.Kinds, kind) }
