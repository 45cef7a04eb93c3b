package process

import (
	"context"
)

// hook is one phase of a task's life. An error ends the life; it is the
// attempt's failure.
type hook struct {
	name string
	run  func(a *Attempt, ctx context.Context) error
}

// hooks are the phases in order. Cleanup follows in any case.
func (e *Executor) hooks() []hook {
	return []hook{
		{"workdir", (*Attempt).workdir},
		{"inputs", (*Attempt).inputs},
		{"program", (*Attempt).program},
		{"runtime", (*Attempt).prepareRuntime},
		{"env", (*Attempt).environ},
		{"gpu", (*Attempt).gpu},
		{"start", (*Attempt).start},
		{"watch", (*Attempt).watch},
		{"outputs", (*Attempt).outputs},
	}
}
