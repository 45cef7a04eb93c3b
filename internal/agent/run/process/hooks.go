package process

import (
	"context"
)

// hook is one phase of a task's life. An error ends the life; it is the
// attempt's failure.
type hook struct {
	name string
	run  func(a *Attempt, ctx context.Context) error
	held bool    // also of an attempt that an earlier life of the worker started
	of   setting // in which it is a phase; both if it names none
}

// setting is what the program of an attempt runs in.
type setting int

const (
	onWorker    setting = iota + 1 // as a process of the machine
	inContainer                    // in a container
)

// hooks are the phases in order. Settling the report and cleaning up follow in any
// case. What an attempt runs in is decided by the first; one that may run in both ways goes over to
// the worker if no container can be made, so that those phases stand below.
func (e *Executor) hooks() []hook {
	return []hook{
		{name: "isolation", run: (*Attempt).isolate, held: true},
		{name: "workdir", run: (*Attempt).workdir},
		{name: "inputs", run: (*Attempt).inputs},
		{name: "checkpoint", run: (*Attempt).resume},
		{name: "program", run: (*Attempt).program},
		{name: "box", run: (*Attempt).pack, of: inContainer},
		{name: "container", run: (*Attempt).contain, of: inContainer},
		{name: "runtime", run: (*Attempt).prepareRuntime, of: onWorker},
		{name: "link", run: (*Attempt).link, of: onWorker},
		{name: "limits", run: (*Attempt).limits, of: onWorker},
		{name: "env", run: (*Attempt).environ, of: onWorker},
		{name: "gpu", run: (*Attempt).gpu, of: onWorker},
		{name: "host", run: (*Attempt).host, of: onWorker},
		{name: "launcher", run: (*Attempt).launch, of: onWorker},
		{name: "start", run: (*Attempt).start},
		{name: "adopt", run: (*Attempt).adopt, held: true},
		{name: "watch", run: (*Attempt).watch, held: true},
		{name: "removal", run: (*Attempt).unmake, held: true, of: inContainer},
		{name: "devices", run: (*Attempt).giveDevices, held: true},
		{name: "outputs", run: (*Attempt).outputs, held: true},
	}
}
