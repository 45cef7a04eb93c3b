package process

import (
	"context"
)

// gpu lets the task see the devices that it was granted and no others, whatever
// its spec says.
func (a *Attempt) gpu(ctx context.Context) error {
	if err := a.room(ctx); err != nil {
		return err
	}
	devices := a.e.env.GPUs
	if devices == nil {
		return nil
	}
	if a.setting != inContainer { // the devices of a container are its engine's to show
		a.env = setAll(a.env, devices.Environ(&a.Task.Grant))
	}
	devices.Take(ctx, a.Task.Attempt, &a.Task.Grant)
	a.devices = true
	return nil
}

// giveDevices gives them back. Its error is that one of them failed under the task.
func (a *Attempt) giveDevices(ctx context.Context) error {
	if !a.devices {
		return nil
	}
	a.devices = false
	if len(a.Task.Grant.GPUs) > 0 && a.proc != nil {
		a.Step("its GPUs are looked at")
	}
	err := a.e.env.GPUs.Give(context.WithoutCancel(ctx), a.Task.Attempt, &a.Task.Grant, a.mark())
	if err != nil && a.exit != nil && a.exit.Code == 0 {
		a.Say("the task succeeded, but: " + err.Error())
		return nil
	}
	return err
}
