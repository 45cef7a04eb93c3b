package follow

import (
	"context"
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

const (
	namedArtifacts = 4   // in the line that tells of them
	countedTasks   = 100 // of which artifacts are counted
)

// kept tells how to come to what a job left. It is no reason to fail if that is not known.
func kept(ctx context.Context, a *frame.App, server *client.Client, job muster.Job, tell Tell) {
	var files []muster.Artifact
	results := false
	n, from := 0, 0
	for t, err := range server.Tasks(ctx, job.ID, client.TaskQuery{Page: countedTasks}) {
		if err != nil || n == countedTasks {
			break
		}
		n++
		if len(t.Artifacts) > 0 {
			from++
		}
		files = append(files, t.Artifacts...)
		results = results || len(t.Result) > 0
	}
	if results && tell == Left {
		a.Say("result: muster result %s", job.ID)
	}
	if text := listed(files, from, job.Counts.Total() > countedTasks); text != "" {
		a.Say("artifacts: %s: muster get %s", text, job.ID)
	}
}

// listed names the artifacts of one task, or counts those of several; "" if there are none. With more there are tasks that were not looked at.
func listed(files []muster.Artifact, tasks int, more bool) string {
	if len(files) == 0 {
		return ""
	}
	if tasks > 1 {
		var size int64
		for i := range files {
			size += files[i].Size
		}
		of := ""
		if more {
			of = fmt.Sprintf(" of the first %d tasks", countedTasks)
		}
		return fmt.Sprintf("%d files%s, %s", len(files), of, muster.Size(size))
	}
	var names []string
	for i := range files[:min(len(files), namedArtifacts)] {
		names = append(names, fmt.Sprintf("%s (%s)", term.Clean(files[i].Name), muster.Size(files[i].Size)))
	}
	if left := len(files) - len(names); left > 0 {
		names = append(names, fmt.Sprintf("%d more", left))
	}
	return strings.Join(names, ", ")
}
