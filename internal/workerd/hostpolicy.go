package workerd

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/hostpolicy"
)

// applyLimits reduces the machine's resources by what its owner reserves.
func (w *Worker) applyLimits(r *muster.Resources) {
	found := r.Memory
	w.cfg.HostPolicy.Apply(r)
	if w.cfg.CPUs > 0 {
		r.CPUs = w.cfg.CPUs
	}
	if m := w.cfg.Memory; m > 0 && (m < r.Memory || r.Memory == found) {
		r.Memory = m
	}
}

func (w *Worker) newEnforcer(a *agent.Agent, devices *gpu.Stream) *hostpolicy.Enforcer {
	return hostpolicy.New(hostpolicy.Config{Options: w.cfg.HostPolicy, Data: w.cfg.Data, Worker: enforcedAgent{a}, GPUs: devices.Latest, Devices: a.Devices, Log: w.log})
}

// enforcedAgent is the agent with the methods that the enforcer needs.
type enforcedAgent struct{ *agent.Agent }

var _ hostpolicy.Worker = enforcedAgent{}

func (a enforcedAgent) Running() []hostpolicy.Running {
	var list []hostpolicy.Running
	for _, r := range a.Agent.Running() {
		list = append(list, hostpolicy.Running{Attempt: r.Attempt, GPUs: r.Grant.GPUs, Checkpoint: r.Checkpoint, Started: r.Pid.PID != 0})
	}
	return list
}

// Freeze implements hostpolicy.Worker. It shows the reason as the attempt's step.
func (a enforcedAgent) Freeze(id muster.AttemptID, on bool, why string) error {
	if err := a.Agent.Freeze(id, on); err != nil {
		return err
	}
	if on {
		a.SetStep(id, "frozen: "+why)
	} else {
		a.SetStep(id, "")
	}
	return nil
}

func (a enforcedAgent) Withhold(devices map[string]string) { a.Agent.Withhold("owner", devices) }
