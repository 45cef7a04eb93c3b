// Package lazyregexp has regular expressions that are compiled when they are used first, so that a program does not compile all that its
// packages have when it starts. It is for variables of packages; internal/arch compiles each of them, so that all are valid.
package lazyregexp

import (
	"regexp"
	"sync/atomic"
)

// Regexp is a regular expression. It is safe for concurrent use.
type Regexp struct {
	text     string
	compiled atomic.Pointer[regexp.Regexp]
}

// New returns a regular expression, which must be valid.
func New(text string) *Regexp { return &Regexp{text: text} }

// Get returns the compiled expression. Goroutines that need it first at once may each compile it.
func (r *Regexp) Get() *regexp.Regexp {
	re := r.compiled.Load()
	if re == nil {
		re = regexp.MustCompile(r.text)
		r.compiled.Store(re)
	}
	return re
}
