package process

import (
	"context"
)

// phase is one phase of a task's life. An error ends the life; it is the
// attempt's failure.
type phase struct {
	name       string
	run        func(a *Attempt, ctx context.Context) error
	onRecovery bool    // also of an attempt that an earlier life of the worker started
	mode       runMode // in which it is a phase; both if it names none
}

// runMode is what the program of an attempt runs in.
type runMode int

const (
	modeProcess   runMode = iota + 1 // as a process of the machine
	modeContainer                    // in a container
)

// newPhases are the phases in order. Settling the report and cleaning up follow in any
// case. What an attempt runs in is decided by the first; one that may run in both ways goes over to
// the worker if no container can be made, so that those phases stand below.
func (e *Executor) newPhases() []phase {
	return []phase{
		{name: "isolation", run: (*Attempt).chooseMode, onRecovery: true},
		{name: "workdir", run: (*Attempt).makeFolders},
		{name: "inputs", run: (*Attempt).fetchInputs},
		{name: "checkpoint", run: (*Attempt).loadCheckpoint},
		{name: "program", run: (*Attempt).resolveProgram},
		{name: "box", run: (*Attempt).prepareContainer, mode: modeContainer},
		{name: "container", run: (*Attempt).createContainer, mode: modeContainer},
		{name: "runtime", run: (*Attempt).prepareRuntime, mode: modeProcess},
		{name: "link", run: (*Attempt).linkCheckpoint, mode: modeProcess},
		{name: "limits", run: (*Attempt).prepareIsolation, mode: modeProcess},
		{name: "env", run: (*Attempt).buildEnv, mode: modeProcess},
		{name: "gpu", run: (*Attempt).acquireDevices, mode: modeProcess},
		{name: "host", run: (*Attempt).startModelServer, mode: modeProcess},
		{name: "launcher", run: (*Attempt).applyLauncher, mode: modeProcess},
		{name: "start", run: (*Attempt).start},
		{name: "adopt", run: (*Attempt).adopt, onRecovery: true},
		{name: "watch", run: (*Attempt).wait, onRecovery: true},
		{name: "removal", run: (*Attempt).startRemoval, onRecovery: true, mode: modeContainer},
		{name: "devices", run: (*Attempt).releaseDevices, onRecovery: true},
		{name: "outputs", run: (*Attempt).collectOutputs, onRecovery: true},
	}
}
