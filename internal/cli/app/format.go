package app

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// Elapsed says how long something has gone on, or went on if it has ended.
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

// Age says how long ago t was, "" if that is not known.
func Age(t muster.Time, now time.Time) string {
	if t == 0 {
		return ""
	}
	return term.FormatAge(now.Sub(t.Std()))
}

// JoinComma lists names with commas.
func JoinComma[T any](all []T) string {
	parts := make([]string, len(all))
	for i, v := range all {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, ", ")
}

// TaskProgress is how far a task says that it is. One that has succeeded is done,
// whatever it said last.
func TaskProgress(t *muster.Task) string {
	if t.Progress == nil || t.State == muster.Succeeded {
		return ""
	}
	return term.FormatPercent(*t.Progress)
}

// JobFraction is the share of a job that is done, 0 to 1: what the server says, or its finished tasks if it says nothing.
func JobFraction(j *muster.Job) float64 {
	if j.Progress != nil {
		return *j.Progress
	}
	return float64(j.Counts.Finished()) / float64(max(1, j.Counts.Total()))
}

// JobProgress is how far a job is that runs.
func JobProgress(j *muster.Job) string {
	if j.State != muster.JobRunning {
		return ""
	}
	return term.FormatPercent(JobFraction(j))
}

// TaskNote is what a person wants to know next: why it failed, or what it does.
func TaskNote(t *muster.Task) string {
	switch {
	case t.State == muster.Succeeded:
		return ""
	case t.Message != "":
		return t.Message
	case t.Reason == muster.ExitCode && t.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *t.ExitCode)
	case t.Reason != muster.NoReason:
		return string(t.Reason)
	default:
		return TaskStep(t)
	}
}

// TaskStep is what a task says that it does, or did last. What was done to prepare one that never began is over.
func TaskStep(t *muster.Task) string {
	if t.State.Final() && t.StartedAt == 0 {
		return ""
	}
	return t.Step
}

// ShortImage names an image as briefly as people compare these: without Docker's own registry, and by the first
// letters of its digest, or of its EventID.
func ShortImage(image string) string {
	short := digestPattern.ReplaceAllStringFunc(image, func(digest string) string {
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

var digestPattern = regexp.MustCompile(`@?sha256:[0-9a-f]{64}`)

// TaskImage is the image that a task ran in, else the one that its job asks for, "" for a process; both if the former
// has no name. A task that may be a process, too, has none before it has ended.
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

// FormatAttempt says how an attempt ended, or that it goes on.
func FormatAttempt(a *muster.Attempt, now time.Time) string {
	text := "goes on"
	if a.Outcome != muster.AttemptOpen {
		text = strings.ReplaceAll(string(a.Outcome), "_", " ")
	}
	if a.Worker != "" {
		text = "on " + string(a.Worker) + ": " + text
	}
	if elapsed := Elapsed(a.StartedAt, a.FinishedAt, now); elapsed != "" {
		text += " after " + elapsed
	}
	if a.Reason != muster.NoReason {
		text += " (" + string(a.Reason) + ")"
	}
	switch {
	case a.Message != "":
		text += ": " + a.Message
	case a.ExitCode != nil && *a.ExitCode != 0:
		text += fmt.Sprintf(": exit code %d", *a.ExitCode)
	}
	return text
}

// FormatMetrics writes metrics by name.
func FormatMetrics(m map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, name+"="+strconv.FormatFloat(m[name], 'g', 4, 64))
	}
	return strings.Join(parts, " ")
}

// FormatCounts says how many tasks are in which state, leaving out what is 0 unless
// all is asked for.
func FormatCounts(c muster.Counts, all bool) string {
	var parts []string
	for _, s := range muster.TaskStates {
		if c[s] > 0 || all {
			parts = append(parts, fmt.Sprintf("%d %s", c[s], s))
		}
	}
	return strings.Join(parts, ", ")
}

// FormatPast says how long ago t was and when that was.
func FormatPast(t muster.Time, now time.Time) string {
	if t == 0 {
		return ""
	}
	if age := term.FormatAge(now.Sub(t.Std())); age != "now" {
		return fmt.Sprintf("%s ago (%s)", age, t)
	}
	return fmt.Sprintf("just now (%s)", t)
}

// FormatFuture says when t is, and how long that takes if it is to come.
func FormatFuture(t muster.Time) string {
	if d := time.Until(t.Std()); d > 0 {
		return fmt.Sprintf("in %s (%s)", term.FormatDuration(d), t)
	}
	return t.String()
}

// NonEmpty leaves out empty texts.
func NonEmpty(parts []string) []string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

// StateStyle colours the state of a job, task or worker.
func StateStyle(state string) term.Style {
	switch state {
	case "succeeded", "active":
		return term.Green
	case "failed", "timed_out", "gone", "unreachable":
		return term.Red
	case "running", "assigned", "cancelling", "draining":
		return term.Blue
	case "queued", "waiting", "paused", "constrained", "avoided":
		return term.Yellow
	default:
		return term.Dim
	}
}
