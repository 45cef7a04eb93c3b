package follow

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

func TestTaskStatus(t *testing.T) {
	for _, c := range []struct {
		task muster.Task
		want int
	}{
		{muster.Task{State: muster.Succeeded, ExitCode: new(0)}, 0},
		{muster.Task{State: muster.Failed, Reason: muster.ExitCode, ExitCode: new(75)}, 75},
		{muster.Task{State: muster.Failed, Reason: muster.Signal}, 1},
		{muster.Task{State: muster.Failed, Reason: muster.ArtifactMissing, ExitCode: new(0)}, 1},
		{muster.Task{State: muster.Failed, Reason: muster.WorkerLost}, 125},
		{muster.Task{State: muster.Failed, Reason: muster.UploadFailed, ExitCode: new(0)}, 125},
		{muster.Task{State: muster.Failed, Reason: muster.CrashLimit}, 125},
		{muster.Task{State: muster.TimedOut, Reason: muster.Timeout}, 124},
		{muster.Task{State: muster.TimedOut, Reason: muster.QueueTimeout}, 124},
		{muster.Task{State: muster.Cancelled}, 130},
		{muster.Task{State: muster.Skipped}, 1},
	} {
		if got := TaskExitStatus(&c.task); got != c.want {
			t.Errorf("%s, %s: status %d, want %d", c.task.State, c.task.Reason, got, c.want)
		}
	}
}

func TestStatusLine(t *testing.T) {
	var counts muster.Counts
	counts[muster.Running], counts[muster.Succeeded] = 1, 3
	for want, v := range map[string]progressView{
		"7  queued  no worker has a GPU; muster explain 7  2.0s": {job: muster.Job{ID: 7, State: muster.JobQueued}, reason: "no worker has a GPU"},
		"7  ██████████░░░░░░░░░░  50%  epoch 2/4  loss=0.25  2.0s": {
			job: muster.Job{ID: 7}, task: muster.Task{State: muster.Running, Progress: new(0.5), Step: "epoch 2/4", Metrics: map[string]float64{"loss": 0.25}},
		},
		"7  ███████████████░░░░░  3/4 75%  1 running, 3 succeeded  2.0s": {job: muster.Job{ID: 7, Counts: counts}},
		"7  ██████░░░░░░░░░░░░░░  3/4 30%  1 running, 3 succeeded  2.0s": {job: muster.Job{ID: 7, Counts: counts, Progress: new(0.3)}},
		"7  running  2.0s": {job: muster.Job{ID: 7}, task: muster.Task{State: muster.Running}},
	} {
		if got := v.line(2*time.Second, 100); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestStatusLineFits checks that narrow terminals show why a job waits and the command that explains it, and a long step.
func TestStatusLineFits(t *testing.T) {
	var counts muster.Counts
	counts[muster.Queued] = 8
	reason := "waits for room: 1 worker could run it, but none of them takes tasks now, because its owner allows no tasks at this time"
	metrics := map[string]float64{"loss": 0.25, "accuracy": 0.75}
	for _, c := range []struct {
		width int
		view  progressView
		want  string
	}{
		{79, progressView{job: muster.Job{ID: 62, State: muster.JobQueued}, reason: reason}, "62  queued  waits for room: 1 worker could run it, b…; muster explain 62  1m05s"},
		{39, progressView{job: muster.Job{ID: 62, State: muster.JobQueued}, reason: reason}, "62  queued  muster explain 62  1m05s"},
		{79, progressView{job: muster.Job{ID: 62, State: muster.JobQueued, Counts: counts}, reason: reason}, "62  ░░░░░░░░░░░░░░░░░░░░  0/8 0%  waits for room: 1 …; muster explain 62  1m05s"},
		{39, progressView{job: muster.Job{ID: 62, State: muster.JobQueued, Counts: counts}, reason: reason}, "62  0/8 0%  muster explain 62  1m05s"},
		{79, progressView{job: muster.Job{ID: 62}, task: muster.Task{State: muster.Running, Progress: new(0.5), Step: strings.Repeat("step ", 20), Metrics: metrics}}, "62  ██████████░░░░░░░░░░  50%  step step step step step step step step…  1m05s"},
		{39, progressView{job: muster.Job{ID: 62}, task: muster.Task{State: muster.Running, Progress: new(0.5), Step: "epoch 3/7", Metrics: metrics}}, "62  50%  epoch 3/7  1m05s"},
	} {
		got := c.view.line(65*time.Second, c.width)
		if got != c.want || term.Width(got) > c.width {
			t.Errorf("%d columns, %d used:\n%s\nwant:\n%s", c.width, term.Width(got), got, c.want)
		}
	}
}

// TestWaitWarnings checks which causes are printed, and when.
func TestWaitWarnings(t *testing.T) {
	start := time.Now()
	room, busy := &muster.Explanation{Summary: "waits for room: 3 workers"}, &muster.Explanation{Summary: "waits until 2026-11-28T00:00:00.000Z: worker vm failed it"}
	never := &muster.Explanation{Summary: "no worker has joined"}
	type step struct {
		after time.Duration
		x     *muster.Explanation
		want  bool
	}
	for name, steps := range map[string][]step{
		"not at once, once, then again with another cause": {{0, room, false}, {9 * time.Second, room, false}, {10 * time.Second, room, true}, {2 * time.Minute, &muster.Explanation{Summary: "waits for room: 4 workers"}, false}, {2 * time.Minute, busy, true}},
		"at most once a minute":                            {{0, room, false}, {11 * time.Second, room, true}, {12 * time.Second, busy, false}, {71 * time.Second, busy, true}, {75 * time.Second, room, false}},
		"at once if it can never start":                    {{0, never, true}, {time.Second, never, false}, {2 * time.Minute, never, false}},
	} {
		w, silent := waitWarner{id: 7}, waitWarner{id: 7, interactive: true}
		for i, s := range steps {
			if got := w.message(s.x, start.Add(s.after)); (got != "") != s.want {
				t.Errorf("%s, step %d: %q", name, i, got)
			}
			if got := silent.message(s.x, start.Add(s.after)); got != "" && !s.x.Unschedulable() {
				t.Errorf("%s, step %d: a terminal with a status line shows %q", name, i, got)
			}
		}
	}
}

func TestJobThatNeverStarts(t *testing.T) {
	owner := muster.Verdict{Name: "vm", Filter: "owner", Why: "its owner does not allow the image a"}
	for want, x := range map[string]muster.Explanation{
		"": {Summary: "can start now: 1 worker fits"},
		"muster: job 7 waits: no worker has joined; for details, use muster explain 7": {Summary: "no worker has joined"},
		"muster: job 7 waits: the only worker, vm, cannot run it: its owner does not allow the image a; for details, use muster explain 7": {
			Summary: "no worker can run it: 1 filtered out by owner", Workers: []muster.Verdict{owner},
		},
		"muster: job 7 waits: no worker can run it: 2 filtered out by owner; for details, use muster explain 7": {
			Summary: "no worker can run it: 2 filtered out by owner", Workers: []muster.Verdict{owner, owner},
		},
	} {
		if x.Unschedulable() != (want != "") || want != "" && waitMessage(7, &x) != want {
			t.Errorf("never is %v, %q, want %q", x.Unschedulable(), waitMessage(7, &x), want)
		}
	}
}

// TestPrefixedLines checks that with a prefix every line is whole and nothing is
// lost, however the output is cut.
func TestPrefixedLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([ab]{0,5}\n?){0,20}`).Draw(t, "text")
		var b bytes.Buffer
		w := &lineWriter{printer: NewPrinter(nil, plain(&b), plain(&b)), w: &b, prefix: "1.2 | "}
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			w.write([]byte(rest[:n]))
			rest = rest[n:]
		}
		w.flush()
		want := ""
		for line := range strings.Lines(text) {
			want = fmt.Sprintf("%s1.2 | %s\n", want, strings.TrimSuffix(line, "\n"))
		}
		if b.String() != want {
			t.Fatalf("%q became %q, want %q", text, &b, want)
		}
	})
}

// TestTimestampsOfCutLines checks that each line has the time of its first part, however the output is cut.
func TestTimestampsOfCutLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([ab]{0,5}\n?){0,20}`).Draw(t, "text")
		prefix := rapid.SampledFrom([]string{"", "1.2 | "}).Draw(t, "prefix")
		var b bytes.Buffer
		p := NewPrinter(nil, plain(&b), plain(&b))
		p.Timestamps = true
		w := &lineWriter{printer: p, w: &b, prefix: prefix}
		var times []string // of the bytes
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			at := time.UnixMilli(1_700_000_000_000 + int64(len(times)))
			w.at = muster.NewTime(at)
			w.write([]byte(rest[:n]))
			for range n {
				times = append(times, at.Format("2006-01-02T15:04:05.000Z07:00"))
			}
			rest = rest[n:]
		}
		w.flush()
		var want strings.Builder
		i := 0
		for line := range strings.Lines(text) {
			want.WriteString(prefix + times[i] + " " + strings.TrimSuffix(line, "\n") + "\n")
			i += len(line)
		}
		if b.String() != want.String() {
			t.Fatalf("%q became %q, want %q", text, &b, &want)
		}
	})
}

func TestArtifactsAreListed(t *testing.T) {
	var files []muster.Artifact
	for _, name := range []string{"model.pt", "metrics.json", "a", "b\x1b[2J", "c"} {
		files = append(files, muster.Artifact{Name: name, Size: 3 << 19})
	}
	for want, c := range map[string]struct {
		files, tasks int
		more         bool
	}{
		"": {0, 0, true},
		"model.pt (1.5MiB), metrics.json (1.5MiB)":                                     {2, 1, false},
		"model.pt (1.5MiB), metrics.json (1.5MiB), a (1.5MiB), b [2J (1.5MiB), 1 more": {5, 1, false},
		"5 files, 7.5MiB":                        {5, 2, false},
		"5 files of the first 100 tasks, 7.5MiB": {5, 2, true},
	} {
		if got := describeArtifacts(files[:c.files], c.tasks, c.more); got != want {
			t.Errorf("%d files of %d tasks: %q, want %q", c.files, c.tasks, got, want)
		}
	}
}
