package frame

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

// Took says how long something has gone on, or went on if it has ended.
func Took(from, to muster.Time, now time.Time) string {
	switch {
	case from == 0:
		return ""
	case to == 0:
		return term.Elapsed(now.Sub(from.Std()))
	default:
		return term.Elapsed(to.Sub(from).Std())
	}
}

// Age says how long ago t was, "" if that is not known.
func Age(t muster.Time, now time.Time) string {
	if t == 0 {
		return ""
	}
	return term.Age(now.Sub(t.Std()))
}

// Words lists names with commas.
func Words[T any](all []T) string {
	parts := make([]string, len(all))
	for i, v := range all {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, ", ")
}

// Done is how far a task says that it is. One that has succeeded is done,
// whatever it said last.
func Done(t *muster.Task) string {
	if t.Progress == nil || t.State == muster.Succeeded {
		return ""
	}
	return term.Percent(*t.Progress)
}

// JobShare is the share of a job that is done, 0 to 1: what the server says, or its finished tasks if it says nothing.
func JobShare(j *muster.Job) float64 {
	if j.Progress != nil {
		return *j.Progress
	}
	return float64(j.Counts.Finished()) / float64(max(1, j.Counts.Total()))
}

// JobDone is how far a job is that runs.
func JobDone(j *muster.Job) string {
	if j.State != muster.JobRunning {
		return ""
	}
	return term.Percent(JobShare(j))
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
		return Step(t)
	}
}

// Step is what a task says that it does, or did last. What was done to prepare one that never began is over.
func Step(t *muster.Task) string {
	if t.State.Final() && t.StartedAt == 0 {
		return ""
	}
	return t.Step
}

// Image names an image as briefly as people compare these: without Docker's own registry, and by the first
// letters of its digest, or of its EventID.
func Image(image string) string {
	brief := digests.ReplaceAllStringFunc(image, func(digest string) string {
		const letters = 12
		id := strings.TrimPrefix(digest, "@sha256:")
		if id != digest {
			return "@" + id[:letters]
		}
		return digest[:len("sha256:")+letters]
	})
	if brief == image {
		return image
	}
	return strings.TrimPrefix(strings.TrimPrefix(brief, "docker.io/"), "library/")
}

var digests = regexp.MustCompile(`@?sha256:[0-9a-f]{64}`)

// ImageOf is the image that a task ran in, else the one that its job asks for, "" for a process; both if the former
// has no name. A task that may be a process, too, has none before it has ended.
func ImageOf(t *muster.Task, spec *muster.Spec) string {
	asked := ""
	if spec != nil && t.Group >= 0 && t.Group < len(spec.Tasks) {
		asked = spec.Tasks[t.Group].Image
	}
	switch {
	case strings.HasPrefix(t.Image, "sha256:") && asked != "" && asked != t.Image:
		return asked + " (" + t.Image + ")"
	case t.Image != "" || asked == "" || spec.Tasks[t.Group].Isolation == muster.IsolationAuto:
		return t.Image
	default:
		return asked
	}
}

// Attempt says how an attempt ended, or that it goes on.
func Attempt(a *muster.Attempt, now time.Time) string {
	text := "goes on"
	if a.Outcome != muster.AttemptOpen {
		text = strings.ReplaceAll(string(a.Outcome), "_", " ")
	}
	if a.Worker != "" {
		text = "on " + string(a.Worker) + ": " + text
	}
	if took := Took(a.StartedAt, a.FinishedAt, now); took != "" {
		text += " after " + took
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

// Metrics writes metrics by name.
func Metrics(m map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, name+"="+strconv.FormatFloat(m[name], 'g', 4, 64))
	}
	return strings.Join(parts, " ")
}

// Counts says how many tasks are in which state, leaving out what is 0 unless
// all is asked for.
func Counts(c muster.Counts, all bool) string {
	var parts []string
	for _, s := range muster.TaskStates {
		if c[s] > 0 || all {
			parts = append(parts, fmt.Sprintf("%d %s", c[s], s))
		}
	}
	return strings.Join(parts, ", ")
}

// Since says how long ago t was and when that was.
func Since(t muster.Time, now time.Time) string {
	if t == 0 {
		return ""
	}
	if age := term.Age(now.Sub(t.Std())); age != "now" {
		return fmt.Sprintf("%s ago (%s)", age, t)
	}
	return fmt.Sprintf("just now (%s)", t)
}

// Until says when t is, and how long that takes if it is to come.
func Until(t muster.Time) string {
	if d := time.Until(t.Std()); d > 0 {
		return fmt.Sprintf("in %s (%s)", term.Elapsed(d), t)
	}
	return t.String()
}

// NonEmpty leaves out empty texts.
func NonEmpty(parts []string) []string {
	var full []string
	for _, p := range parts {
		if p != "" {
			full = append(full, p)
		}
	}
	return full
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
