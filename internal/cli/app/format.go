package app

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// Elapsed formats the time from from to to, or to now if to is 0. It is "" before the start.
func Elapsed(from, to muster.Time, now time.Time) string {
	switch {
	case from == 0:
		return ""
	case to == 0:
		return term.FormatDuration(now.Sub(from.Std()))
	default:
		return term.FormatDuration(to.Sub(from).Std())
	}
}

// Age formats the time since t, "" if t is 0.
func Age(t muster.Time, now time.Time) string {
	if t == 0 {
		return ""
	}
	return term.FormatAge(now.Sub(t.Std()))
}

// JoinComma joins values with commas.
func JoinComma[T any](all []T) string {
	parts := make([]string, len(all))
	for i, v := range all {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, ", ")
}

// TaskProgress formats the reported progress of a task, "" if there is none or the task has succeeded.
func TaskProgress(t *muster.Task) string {
	if t.Progress == nil || t.State == muster.Succeeded {
		return ""
	}
	return term.FormatPercent(*t.Progress)
}

// JobFraction returns the progress of a job, 0 to 1: the one that the server reports, or the share of finished tasks.
func JobFraction(j *muster.Job) float64 {
	if j.Progress != nil {
		return *j.Progress
	}
	return float64(j.Counts.Finished()) / float64(max(1, j.Counts.Total()))
}

// JobStateText returns the state of a job for people: held if it would start but for that.
func JobStateText(j *muster.Job) string {
	if j.Held && (j.State == muster.JobQueued || j.State == muster.JobWaiting) {
		return "held"
	}
	return string(j.State)
}

// JobProgress formats the progress of a running job.
func JobProgress(j *muster.Job) string {
	if j.State != muster.JobRunning {
		return ""
	}
	return term.FormatPercent(JobFraction(j))
}

// TaskNote returns why a task failed, or its current step.
func TaskNote(t *muster.Task) string {
	switch {
	case t.Cached:
		return "cached"
	case t.State == muster.Succeeded:
		return ""
	case t.Message != "":
		return Headline(t.Message)
	case t.Reason == muster.ExitCode && t.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *t.ExitCode)
	case t.Reason != muster.NoReason:
		return string(t.Reason)
	default:
		return TaskStep(t)
	}
}

// TaskStep returns the last reported step of a task, "" if it ended before it started.
func TaskStep(t *muster.Task) string {
	if t.State.Final() && t.StartedAt == 0 {
		return ""
	}
	return t.Step
}

// ShortImage shortens the name of an image: without the registry of Docker, and with the first 12 digits of a digest or id.
func ShortImage(image string) string {
	short := digestPattern.Get().ReplaceAllStringFunc(image, func(digest string) string {
		const letters = 12
		id := strings.TrimPrefix(digest, "@sha256:")
		if id != digest {
			return "@" + id[:letters]
		}
		return digest[:len("sha256:")+letters]
	})
	if short == image {
		return image
	}
	return strings.TrimPrefix(strings.TrimPrefix(short, "docker.io/"), "library/")
}

var digestPattern = lazyregexp.New(`@?sha256:[0-9a-f]{64}`)

// TaskImage returns the image of a task, before its start the requested one, "" for a process; both if the former
// has no name. A task with isolation auto has none before it ends.
func TaskImage(t *muster.Task, spec *muster.Spec) string {
	requested := ""
	if spec != nil && t.Group >= 0 && t.Group < len(spec.Tasks) {
		requested = spec.Tasks[t.Group].Image
	}
	switch {
	case strings.HasPrefix(t.Image, "sha256:") && requested != "" && requested != t.Image:
		return requested + " (" + t.Image + ")"
	case t.Image != "" || requested == "" || spec.Tasks[t.Group].Isolation == muster.IsolationAuto:
		return t.Image
	default:
		return requested
	}
}

// Headline is muster.Headline with local times.
func Headline(message string) string { return LocalTimes(muster.Headline(message)) }

// FormatAttempt formats the outcome of an attempt.
func FormatAttempt(a *muster.Attempt, now time.Time) string {
	text := "running"
	if a.Outcome != muster.AttemptOpen {
		text = strings.ReplaceAll(string(a.Outcome), "_", " ")
	}
	if a.Worker != "" {
		text = "on " + WorkerName(a.Worker, a.WorkerName) + ": " + text
	}
	if elapsed := Elapsed(a.StartedAt, a.FinishedAt, now); elapsed != "" {
		text += " after " + elapsed
	}
	if a.Reason != muster.NoReason {
		text += " (" + string(a.Reason) + ")"
	}
	switch {
	case a.Message != "":
		text += ": " + Headline(a.Message)
	case a.ExitCode != nil && *a.ExitCode != 0:
		text += fmt.Sprintf(": exit code %d", *a.ExitCode)
	}
	return text
}

// FormatMetrics formats metrics, sorted by name.
func FormatMetrics(m map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, name+"="+strconv.FormatFloat(m[name], 'g', 4, 64))
	}
	return strings.Join(parts, " ")
}

// FormatCounts formats the number of tasks in each state, without those that are 0 unless all is set.
func FormatCounts(c muster.Counts, all bool) string {
	var parts []string
	for _, s := range muster.TaskStates {
		if c[s] > 0 || all {
			parts = append(parts, fmt.Sprintf("%d %s", c[s], s))
		}
	}
	return strings.Join(parts, ", ")
}

// FormatPast formats a time in the past as an age and a local time.
func FormatPast(t muster.Time, now time.Time) string {
	if t == 0 {
		return ""
	}
	if age := term.FormatAge(now.Sub(t.Std())); age != "now" {
		return fmt.Sprintf("%s ago (%s)", age, FormatTime(t))
	}
	return fmt.Sprintf("just now (%s)", FormatTime(t))
}

// FormatFuture formats a time as a local time, with the time until then if it is in the future.
func FormatFuture(t muster.Time) string {
	if d := time.Until(t.Std()); d > 0 {
		return fmt.Sprintf("in %s (%s)", term.FormatDuration(d), FormatTime(t))
	}
	return FormatTime(t)
}

// NonEmpty deletes empty strings in place.
func NonEmpty(parts []string) []string {
	return slices.DeleteFunc(parts, func(p string) bool { return p == "" })
}

// StateStyle returns the color of a state of a job, task or worker.
func StateStyle(state string) term.Style {
	switch state {
	case "succeeded", "active":
		return term.Green
	case "failed", "timed_out", "gone", "unreachable":
		return term.Red
	case "running", "assigned", "cancelling", "draining":
		return term.Blue
	case "pending", "queued", "waiting", "held", "paused", "constrained", "avoided":
		return term.Yellow
	default:
		return term.Dim
	}
}

// WorkerStatus returns the state of a worker in one word. An active worker that takes no tasks because of its
// machine's owner is constrained; one whose identity is not accepted is quarantined; one that the scheduler avoids because attempts fail there is avoided.
func WorkerStatus(w *muster.Worker) string {
	switch {
	case w.Quarantined != "":
		return "quarantined"
	case w.State != muster.WorkerActive:
		return string(w.State)
	case w.Constrained != "":
		return "constrained"
	case w.Health != nil && w.Health.Avoided != "":
		return "avoided"
	default:
		return string(w.State)
	}
}

// FormatDevices formats the number of devices of each model, and of those in quarantine.
func FormatDevices(devices []muster.GPU) string {
	n := map[string]int{}
	quarantined := 0
	for _, d := range devices {
		n[d.Name]++
		if d.Quarantined != "" {
			quarantined++
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%d×%s", n[name], name))
	}
	if quarantined > 0 {
		parts = append(parts, fmt.Sprintf("%d quarantined", quarantined))
	}
	return strings.Join(parts, ", ")
}
