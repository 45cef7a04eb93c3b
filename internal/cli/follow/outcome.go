package follow

import (
	"context"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/client"
)

// JobExitStatus returns the exit status for a job that has ended, and the task that
// decided it: the first one that failed, else the first that timed out, else the first cancelled.
func JobExitStatus(ctx context.Context, server *client.Client, job muster.Job) (int, *muster.Task, error) {
	for _, s := range []muster.TaskState{muster.Failed, muster.TimedOut, muster.Cancelled} {
		if job.Counts[s] == 0 {
			continue
		}
		for t, err := range server.Tasks(ctx, job.ID, client.TaskQuery{States: []muster.TaskState{s}, Page: 1}) {
			if err != nil {
				return 0, nil, err
			}
			return TaskExitStatus(&t), &t, nil
		}
	}
	if job.State != muster.JobSucceeded {
		return app.ExitFailed, nil, nil
	}
	return 0, nil, nil
}

// TaskExitStatus is the exit status of run and wait for a task that has ended.
func TaskExitStatus(t *muster.Task) int {
	switch t.State {
	case muster.Succeeded:
		return 0
	case muster.TimedOut:
		return app.ExitTimedOut
	case muster.Cancelled:
		return app.ExitCancelled
	case muster.Failed, muster.Skipped:
	case muster.Waiting, muster.Queued, muster.Assigned, muster.Running, muster.Cancelling:
	}
	if t.Reason.FleetFault() || t.Reason == muster.CrashLimit {
		return app.ExitFleetFault
	}
	if t.ExitCode != nil && *t.ExitCode > 0 && *t.ExitCode < 256 {
		return *t.ExitCode
	}
	return app.ExitFailed
}
