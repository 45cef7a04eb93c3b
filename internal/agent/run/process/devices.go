package process

import (
	"context"
)

// acquireDevices lets the task see only the devices that it was granted, whatever its spec says.
func (a *Attempt) acquireDevices(ctx context.Context) error {
	if err := a.evictModels(ctx); err != nil {
		return err
	}
	devices := a.executor.deps.GPUs
	if devices == nil {
		return nil
	}
	if a.mode != modeContainer { // a container gets its devices from the engine
		a.env = mergeEnv(a.env, devices.Environ(&a.Task.Grant))
	}
	devices.Acquire(ctx, a.Task.Attempt, &a.Task.Grant)
	a.hasDevices = true
	return nil
}

// releaseDevices releases the devices. It returns an error if one of them failed while the task used it.
func (a *Attempt) releaseDevices(ctx context.Context) error {
	if !a.hasDevices {
		return nil
	}
	a.hasDevices = false
	if len(a.Task.Grant.GPUs) > 0 && a.proc != nil {
		a.SetStep("checking its GPUs")
	}
	err := a.executor.deps.GPUs.Release(context.WithoutCancel(ctx), a.Task.Attempt, &a.Task.Grant, a.envTag())
	if err != nil && a.exit != nil && a.exit.Code == 0 {
		a.LogLine("the task succeeded, but: " + err.Error())
		return nil
	}
	return err
}
