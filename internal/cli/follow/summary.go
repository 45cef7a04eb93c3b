package follow

import (
	"context"
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// JobExitStatus returns the exit status of a job that has ended, and the task with that status: the first
// one that failed, else the first that timed out, else the first that was cancelled.
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

// TaskExitStatus returns the exit status of run and wait for a task that has ended.
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

const (
	maxNamedArtifacts = 4
	maxCountedTasks   = 100 // tasks whose artifacts are counted
)

// printSummary prints how to get the artifacts and results of a job. It ignores errors.
func printSummary(ctx context.Context, a *app.App, server *client.Client, job muster.Job, summary Summary) {
	var files []muster.Artifact
	results := false
	n, withFiles := 0, 0
	for t, err := range server.Tasks(ctx, job.ID, client.TaskQuery{Page: maxCountedTasks}) {
		if err != nil || n == maxCountedTasks {
			break
		}
		n++
		if len(t.Artifacts) > 0 {
			withFiles++
		}
		files = append(files, t.Artifacts...)
		results = results || len(t.Result) > 0 && !t.OnlyOutput() // which has been printed
	}
	if results && summary == SummaryFull {
		a.Messagef("result: muster result %s", job.ID)
	}
	if text := describeArtifacts(files, withFiles, job.Counts.Total() > maxCountedTasks); text != "" {
		a.Messagef("artifacts: %s: muster get %s", text, job.ID)
	}
}

// describeArtifacts names the artifacts of one task, or counts those of several; "" if there are none. more means
// that files has those of the first tasks only.
func describeArtifacts(files []muster.Artifact, tasks int, more bool) string {
	if len(files) == 0 {
		return ""
	}
	if tasks > 1 {
		var size int64
		for i := range files {
			size += files[i].Size
		}
		scope := ""
		if more {
			scope = fmt.Sprintf(" of the first %d tasks", maxCountedTasks)
		}
		return fmt.Sprintf("%d files%s, %s", len(files), scope, muster.Size(size))
	}
	var names []string
	for i := range files[:min(len(files), maxNamedArtifacts)] {
		names = append(names, fmt.Sprintf("%s (%s)", term.Sanitize(files[i].Name), muster.Size(files[i].Size)))
	}
	if rest := len(files) - len(names); rest > 0 {
		names = append(names, fmt.Sprintf("%d more", rest))
	}
	return strings.Join(names, ", ")
}
