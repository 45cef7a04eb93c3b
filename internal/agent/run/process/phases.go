package process

import "context"

// phase is one phase of an attempt. An error is the attempt's failure and ends the phases.
type phase struct {
	name       string
	run        func(a *Attempt, ctx context.Context) error
	onRecovery bool    // also runs for an attempt that an earlier incarnation of the worker started
	mode       runMode // the mode that has this phase; 0: both
}

// runMode is what the program of an attempt runs in.
type runMode int

const (
	modeProcess   runMode = iota + 1 // as a process of the machine
	modeContainer                    // in a container
)

// phases are the phases in order. Saving the report and cleaning up follow in any case. The phases of processes come after
// those of containers, because createContainer may fall back to a process.
var phases = []phase{
	{name: "mode", run: (*Attempt).chooseMode, onRecovery: true},
	{name: "workdir", run: (*Attempt).makeFolders},
	{name: "inputs", run: (*Attempt).fetchInputs},
	{name: "secrets", run: (*Attempt).writeSecrets},
	{name: "checkpoint", run: (*Attempt).loadCheckpoint},
	{name: "program", run: (*Attempt).resolveProgram},
	{name: "runtime", run: (*Attempt).prepareRuntime, mode: modeContainer},
	{name: "link", run: (*Attempt).linkCheckpoint, mode: modeContainer},
	{name: "limits", run: (*Attempt).prepareIsolation, mode: modeContainer},
	{name: "env", run: (*Attempt).buildEnv, mode: modeContainer},
	{name: "gpu", run: (*Attempt).acquireDevices, mode: modeContainer},
	{name: "launcher", run: (*Attempt).applyLauncher, mode: modeContainer},
	{name: "container", run: (*Attempt).createContainer, mode: modeContainer},
	{name: "runtime", run: (*Attempt).prepareRuntime, mode: modeProcess},
	{name: "link", run: (*Attempt).linkCheckpoint, mode: modeProcess},
	{name: "limits", run: (*Attempt).prepareIsolation, mode: modeProcess},
	{name: "env", run: (*Attempt).buildEnv, mode: modeProcess},
	{name: "gpu", run: (*Attempt).acquireDevices, mode: modeProcess},
	{name: "model server", run: (*Attempt).startModelServer, mode: modeProcess},
	{name: "launcher", run: (*Attempt).applyLauncher, mode: modeProcess},
	{name: "start", run: (*Attempt).start},
	{name: "adopt", run: (*Attempt).adopt, onRecovery: true},
	{name: "watch", run: (*Attempt).wait, onRecovery: true},
	{name: "removal", run: (*Attempt).startRemoval, onRecovery: true, mode: modeContainer},
	{name: "devices", run: (*Attempt).releaseDevices, onRecovery: true},
	{name: "outputs", run: (*Attempt).collectOutputs, onRecovery: true},
}
