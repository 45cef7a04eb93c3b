package process

import (
	"context"
)

// acquireDevices lets the task see the devices that it was granted and no others, whatever
// its spec says.
func (a *Attempt) acquireDevices(ctx context.Context) error {
	if err := a.evictModels(ctx); err != nil {
		return err
	}
	devices := a.executor.deps.GPUs
	if devices == nil {
		return nil
	}
	if a.mode != modeContainer { // the devices of a container are its engine's to show
		a.env = mergeEnv(a.env, devices.Environ(&a.Task.Grant))
	}
	devices.Acquire(ctx, a.Task.Attempt, &a.Task.Grant)
	a.hasDevices = true
	return nil
}

// releaseDevices gives them back. Its error is that one of them failed under the task.
func (a *Attempt) releaseDevices(ctx context.Context) error {
	if !a.hasDevices {
		return nil
	}
	a.hasDevices = false
	if len(a.Task.Grant.GPUs) > 0 && a.proc != nil {
		a.SetStep("its GPUs are looked at")
	}
	err := a.executor.deps.GPUs.Release(context.WithoutCancel(ctx), a.Task.Attempt, &a.Task.Grant, a.envTag())
	if err != nil && a.exit != nil && a.exit.Code == 0 {
		a.LogLine("the task succeeded, but: " + err.Error())
		return nil
	}
	return err
}
