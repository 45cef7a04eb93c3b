package simtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mutants are edits that each add one fault to the scheduler, and what the simulation
// must report about it. If a mutant passes, the simulation does not check what it claims
// to check. Update an edit that no longer applies.
var mutants = []struct {
	name, file string // relative to the root of the module
	old, new   string
	caught     string // regular expression of the expected report
}{
	{
		name: "the late report of an earlier attempt is accepted",
		file: "internal/sched/attempt.go",
		old:  "t, err := s.current(ev.Worker, r.Attempt)\n",
		new:  "t, err := s.current(ev.Worker, r.Attempt)\nif late := s.task(r.Attempt.Task); late != nil && late.worker != nil { t, err = late, nil }\n",

		caught: `succeeded at attempt \d+ with the result .* of another attempt`,
	},
	{
		name: "a worker is given more processors than it has",
		file: "internal/placement/usage.go",
		old:  "CPUs: Milli(g.CPUs),",
		new:  "CPUs: 0 * Milli(g.CPUs),",

		caught: `worker w\d+ has \{CPUs:.*\} and was given \{CPUs:`,
	},
	{
		name: "a worker is given more tasks than it takes at once",
		file: "internal/placement/usage.go",
		old:  "taken := amounts{MaxTasks: 1,",
		new:  "taken := amounts{MaxTasks: 0,",

		caught: `worker w\d+ runs at most \d tasks and was given \d`,
	},
	{
		name: "queued tasks ignore the missing features of a new worker",
		file: "internal/sched/session.go",
		old:  "if s.limits.Count(&row, 1) {\n",
		new:  "if s.limits.Count(&row, 1) && false {\n",

		caught: `uses \w+, and is offered to w\d+, which lacks it|of project \w+ is offered to w\d+, which takes those of`,
	},
	{
		name: "a stage starts before its needs have succeeded",
		file: "internal/sched/condition.go",
		old:  "case g.unmet.unended > 0:\n",
		new:  "case g.unmet.unended > 1:\n",

		caught: `attempt \S+ starts before stage-\d is done|stage "stage-\d" of job \d+ has \d+ active tasks before "stage-\d" succeeded`,
	},
	{
		name: "a lease never expires",
		file: "internal/sched/timer.go",
		old:  "t.worker.seen.Add(t.group.spec().Disconnect.Grace.Or(muster.DefaultDisconnectGrace))",
		new:  "t.worker.seen.Add(t.group.spec().Disconnect.Grace.Or(muster.DefaultDisconnectGrace) + 1e6*muster.DefaultDisconnectGrace)",

		caught: `is still \w+ on w\d+, which has been disconnected for .*, longer than the lease of`,
	},
	{
		name: "a change is not committed",
		file: "internal/sched/attempt.go",
		old:  "t.row.Checkpoint = ev.SHA256\n\t\ts.changedTask(t)\n",
		new:  "t.row.Checkpoint = ev.SHA256\n",

		caught: `the live state \(-\) is not the committed one \(\+\)|continues from "\w*", but "\w*" was saved last`,
	},
	{
		name: "a pending worker is given tasks",
		file: "internal/sched/session.go",
		old:  "case w.row.Pending:\n",
		new:  "case w.row.Pending && now == 0:\n",

		caught: `attempt \S+ is offered to w\d+, which waits for approval`,
	},
	{
		name: "a hold is ignored",
		file: "internal/sched/queue/place.go",
		old:  "for priority := muster.MaxPriority; priority",
		new:  "for priority := Held; priority",

		caught: `attempt \S+ is offered to w\d+, though its job is held`,
	},
	{
		name: "a removed job is still counted",
		file: "internal/sched/fleet.go",
		old:  "t.counts[state] -= n\n",
		new:  "t.counts[state] -= 0 * n\n",

		caught: `the totals of projects are .*, those of their jobs|the live state \(-\) is not the committed one`,
	},
	{
		name: "a condition is ignored",
		file: "internal/sched/condition.go",
		old:  "} else if !met {\n",
		new:  "} else if !met && now == 0 {\n",

		caught: `the tasks of stage-\d of job \d+ must be skipped \(when: "\S+\{stage-.* but \d+ start`,
	},
	{
		name: "when: failed runs without a failure",
		file: "internal/sched/condition.go",
		old:  "g.spec().When == muster.WhenFailed && g.unmet.failed == 0",
		new:  "g.spec().When == muster.WhenFailed && g.unmet.failed < 0",

		caught: `must be skipped \(when: "failed".* but \d+ start`,
	},
	{
		name: "a stage is not run after failures",
		file: "internal/sched/condition.go",
		old:  "g.unmet.unsuccessful > 0 && !g.spec().RunsAfterFailure()",
		new:  "g.unmet.unsuccessful > 0",

		caught: `must (run|wait) \(when: "(failed|always)".* \d+ are skipped`,
	},
	{
		name: "a job stops one failure too late",
		file: "internal/sched/condition.go",
		old:  "if failed <= int64(j.row.Spec.MaxFailures) {",
		new:  "if failed <= int64(j.row.Spec.MaxFailures)+1 {",

		caught: `tasks of job \d+ failed, at most \d may, and \d+ tasks of stage-\d are not stopped`,
	},
	{
		name: "an array runs one task more than its limit",
		file: "internal/sched/model.go",
		old:  ">= int64(a.Limit)",
		new:  "> int64(a.Limit)",

		caught: `tasks of the array stage-\d of job \d+ run at once, and its limit is`,
	},
	{
		name: "a part of the elements is lost",
		file: "internal/dag/fanout.go",
		old:  "t.Array.FanOut(items)",
		new:  "t.Array.FanOut(items[:(len(items)+1)/2])",

		caught: `has \d tasks, and its array \$\{stage-\d.result.(list|attempt)\}\S* has \d elements`,
	},
	{
		name: "the size of a stage is not committed with its elements",
		file: "internal/sched/fanout.go",
		old:  "g.job.row.Counts[muster.Waiting] += int64(more)",
		new:  "g.job.row.Counts[muster.Waiting] += 0 * int64(more)",

		caught: `job \d+ (says|counts)|the state is inconsistent`,
	},
	{
		name: "a reused task has no result",
		file: "internal/sched/submit.go",
		old:  "Result: o.Result, Artifacts: o.Artifacts,",
		new:  "Artifacts: o.Artifacts,",

		caught: `task \S+ is succeeded at attempt 0 with the result , and \S+, whose result it has|has the result ""`,
	},
	{
		name: "a failure is cached",
		file: "internal/sched/cache.go",
		old:  "if v.State == muster.Succeeded {",
		new:  "if v.State.Final() {",

		caught: `is cached for project \w+, which is (failed|timed_out|cancelled)`,
	},
	{
		name: "identical tasks run at once",
		file: "internal/sched/cache.go",
		old:  "t.parked = t.lookup || running\n",
		new:  "t.parked = t.lookup || running && t.row.Attempt > 1\n",

		caught: `are identical and run at once`,
	},
	{
		name: "a result that is too old is used",
		file: "internal/sched/cache.go",
		old:  "entry.CreatedAt < now.Add(-t.group.spec().Cache.Duration())",
		new:  "entry.CreatedAt < now.Add(-1000*t.group.spec().Cache.Duration())",

		caught: `the cache has one of task \S+ that is \S+ old`,
	},
	{
		name: "an attempt reuses the number of the previous one",
		file: "internal/sched/place.go",
		old:  "t.row.Attempt = w.unused(t.row.ID, t.row.Attempt+1)\n",
		new:  "t.row.Attempt = max(t.row.Attempt, 1)\n",

		caught: `is assigned again as attempt \d+`,
	},
}

// TestMutants runs the simulation on each mutant of the scheduler: it must fail, and
// name what is wrong.
func TestMutants(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the scheduler once for each mutant")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(root, filepath.FromSlash(m.file))
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.old); n != 1 {
				t.Fatalf("the edit matches %d times in %s, want once: update the mutant\n%s", n, m.file, m.old)
			}
			out, err := simulate(t, file, strings.Replace(string(source), m.old, m.new, 1))
			switch {
			case err == nil:
				t.Errorf("the simulation passes although %s:\n%s", m.name, out)
			case strings.Contains(out, "[build failed]"):
				t.Errorf("the mutant does not compile:\n%s", out)
			case !regexp.MustCompile(m.caught).MatchString(out):
				t.Errorf("the simulation does not report that %s (%s):\n%s", m.name, m.caught, out)
			}
		})
	}
}

// simulate runs TestWorld with the content of one source file replaced.
func simulate(t *testing.T, file, content string) (output string, err error) {
	t.Helper()
	dir := t.TempDir()
	mutated, overlay := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{mutated: []byte(content), overlay: replace} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-overlay="+overlay, "-run=^TestWorld$", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
