package process

import (
	"context"
)

// hook is one phase of a task's life. An error ends the life; it is the
// attempt's failure.
type hook struct {
	name string
	run  func(a *Attempt, ctx context.Context) error
	held bool // also of an attempt that an earlier life of the worker started
}

// hooks are the phases in order. Settling the report and cleaning up follow in any
// case.
func (e *Executor) hooks() []hook {
	return []hook{
		{name: "workdir", run: (*Attempt).workdir},
		{name: "inputs", run: (*Attempt).inputs},
		{name: "checkpoint", run: (*Attempt).resume},
		{name: "program", run: (*Attempt).program},
		{name: "runtime", run: (*Attempt).prepareRuntime},
		{name: "limits", run: (*Attempt).limits},
		{name: "env", run: (*Attempt).environ},
		{name: "gpu", run: (*Attempt).gpu},
		{name: "launcher", run: (*Attempt).launch},
		{name: "start", run: (*Attempt).start},
		{name: "adopt", run: (*Attempt).adopt, held: true},
		{name: "watch", run: (*Attempt).watch, held: true},
		{name: "devices", run: (*Attempt).giveDevices, held: true},
		{name: "outputs", run: (*Attempt).outputs, held: true},
	}
}
