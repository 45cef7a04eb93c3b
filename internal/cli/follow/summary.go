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

const (
	maxNamedArtifacts = 4   // in the line that tells of them
	maxCountedTasks   = 100 // of which artifacts are counted
)

// printSummary tells how to come to what a job left. It is no reason to fail if that is not known.
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
		results = results || len(t.Result) > 0
	}
	if results && summary == SummaryFull {
		a.Messagef("result: muster result %s", job.ID)
	}
	if text := describeArtifacts(files, withFiles, job.Counts.Total() > maxCountedTasks); text != "" {
		a.Messagef("artifacts: %s: muster get %s", text, job.ID)
	}
}

// describeArtifacts names the artifacts of one task, or counts those of several; "" if there are none. With more there are tasks that were not looked at.
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
