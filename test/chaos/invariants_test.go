//go:build linux

package chaos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// invariant is one promise that a run verifies. CONTRIBUTING.md lists them.
type invariant string

// The promises that the checker verifies. Each has a history that violates it in checker_test.go.
const (
	noJobLost      invariant = "an acknowledged job is there, with all its tasks"
	oneJobForKey   invariant = "all submissions with one idempotency key make one job"
	noTrace        invariant = "a submission that was refused for want of space left no job"
	allEnd         invariant = "after the faults every task ends"
	rightEnd       invariant = "a task ends as its program does: state, reason and exit code"
	oneResult      invariant = "one attempt's result is accepted, and it is that of an attempt that ran to its end"
	attemptsGrow   invariant = "attempts are numbered without gaps, and each runs at most once"
	noOverlap      invariant = "the attempts of a task do not overlap"
	leaseHolds     invariant = "no process of an attempt outlives its end or its lease"
	needsHold      invariant = "a stage starts after what it needs has succeeded"
	bytesArrive    invariant = "a stage is given the files and results of the accepted attempts that it needs"
	artifactsExact invariant = "artifacts are what the task wrote, bit by bit"
	logsWhole      invariant = "logs are in order, without gaps or doubles, and whole if the attempt ended by itself"
	cancelEnds     invariant = "a cancelled task ends within its grace and its lease"
	countsMatch    invariant = "the counts and the state of a job are those of its tasks"
	legalMoves     invariant = "tasks move between states as docs/states.md says"
	noEventMissed  invariant = "events come in order without gaps, or with a resync"
	eventsTrue     invariant = "what an event said is not taken back by a crash"
	gangsWhole     invariant = "the members of a gang succeed together, in one attempt"
	savedStates    invariant = "a checkpoint is whole, of an earlier attempt, and never older than what was loaded before, there or from the server"
	notOverfull    invariant = "a worker is not given more tasks than it has slots"
	reloadSame     invariant = "a killed server comes back with the same state"
	nothingLeft    invariant = "no process, control group, task folder or log is left on a worker that has ended"
	staysUp        invariant = "no process of Muster ends by itself, panics, or ignores SIGTERM, and the fleet recovers"
	keptStays      invariant = "what a user or a limit keeps is not removed"
	liveStays      invariant = "a job is not removed before its end"
	goneWhole      invariant = "nothing is left of a removed job: rows, logs, or blobs that nothing refers to"
	blobsStay      invariant = "the blobs to which a job refers are there"
	historyWhole   invariant = "the effect files are whole" // of the run, not of the program: without them nothing is known
)

var invariants = []invariant{
	noJobLost, oneJobForKey, noTrace, allEnd, rightEnd, oneResult, attemptsGrow, noOverlap, leaseHolds, needsHold, bytesArrive, artifactsExact, logsWhole,
	cancelEnds, countsMatch, legalMoves, noEventMissed, eventsTrue, gangsWhole, savedStates, notOverfull, reloadSame, nothingLeft, staysUp,
	keptStays, liveStays, goneWhole, blobsStay, historyWhole,
}

// slack is the additional time for a machine that pauses at times.
const slack = 5 * time.Second

// crashLimit is the number of lost attempts after which a task fails.
const crashLimit = 5

// violation is a promise that a history breaks.
type violation struct {
	Invariant         invariant
	Subject, Evidence string
}

// checker looks at one history.
type checker struct {
	h     *History
	found []violation
	jobs  map[string][]*FinalJob     // by name
	gone  map[muster.JobID]*FinalJob // that a client removed, as they were before
}

// check compares a history with all promises.
func check(h *History) []violation {
	c := &checker{h: h, jobs: map[string][]*FinalJob{}, gone: map[muster.JobID]*FinalJob{}}
	for i := range h.Removed {
		c.gone[h.Removed[i].Job.ID] = &h.Removed[i]
	}
	for i := range h.Final {
		j := &h.Final[i]
		c.jobs[j.Job.Name] = append(c.jobs[j.Job.Name], j)
	}
	for i := range h.Jobs {
		if j := c.submission(&h.Jobs[i]); j != nil {
			c.job(&h.Jobs[i], j)
		}
	}
	c.removals()
	c.events()
	c.fleet()
	slices.SortStableFunc(c.found, func(a, b violation) int {
		return cmp.Compare(slices.Index(invariants, a.Invariant), slices.Index(invariants, b.Invariant))
	})
	return c.found
}

func (c *checker) fail(p invariant, subject, format string, args ...any) {
	c.found = append(c.found, violation{p, subject, fmt.Sprintf(format, args...)})
}

// submission checks the answers that clients got for a job, and returns what became of it.
func (c *checker) submission(s *Submission) *FinalJob {
	jobs := c.jobs[s.Name]
	if len(jobs) > 1 {
		c.fail(oneJobForKey, s.Name, "jobs %s and %s were made of one idempotency key", jobs[0].Job.ID, jobs[1].Job.ID)
	}
	for _, id := range s.Acks {
		switch {
		case id != s.Acks[0]:
			c.fail(oneJobForKey, s.Name, "clients got jobs %s and %s", s.Acks[0], id)
		case len(jobs) == 0 && s.mayBeGone():
		case len(jobs) == 0 || jobs[0].Job.ID != id:
			c.fail(noJobLost, s.Name, "it was acknowledged as job %s, and is not there", id)
		}
	}
	if len(jobs) == 0 && len(s.Acks) > 0 && c.gone[s.Acks[0]] != nil {
		jobs = append(jobs, c.gone[s.Acks[0]])
	}
	if len(jobs) == 0 {
		return nil
	}
	unknown := func(refused string) bool { return !strings.HasPrefix(refused, string(muster.StorageFull)) } // such as a lost answer
	if len(s.Acks) == 0 && len(s.Refused) > 0 && !slices.ContainsFunc(s.Refused, unknown) {
		c.fail(noTrace, s.Name, "job %s was made although each submission was refused: %s", jobs[0].Job.ID, s.Refused[0])
	}
	total := 0
	for _, w := range s.Stages {
		total += w.Size
	}
	if len(jobs[0].Tasks) != total {
		c.fail(noJobLost, s.Name, "job %s has %d tasks instead of %d", jobs[0].Job.ID, len(jobs[0].Tasks), total)
		return nil
	}
	return jobs[0]
}

// task is a task with all that is known of it.
type task struct {
	*FinalTask
	id      string // JOB NAME (EventID)
	want    *Want
	index   int
	effects []Effect
}

// accepted returns the effects of the last attempt.
func (t *task) accepted() []Effect {
	var list []Effect
	for _, e := range t.effects {
		if e.Attempt == t.Task.Attempt {
			list = append(list, e)
		}
	}
	return list
}

// detailsOf returns the details of one kind of effects.
func detailsOf(effects []Effect, kind string) []string {
	var list []string
	for _, e := range effects {
		if e.Kind == kind {
			list = append(list, e.Detail)
		}
	}
	return list
}

// firstAt returns when an effect of a kind was first there, or 0.
func firstAt(effects []Effect, kind string) int64 {
	for _, e := range effects {
		if e.Kind == kind {
			return e.At
		}
	}
	return 0
}

func (c *checker) job(s *Submission, j *FinalJob) {
	stages := map[string][]*task{}
	var counts muster.Counts
	n := 0
	for i := range s.Stages {
		w := &s.Stages[i]
		for index := range w.Size {
			ft := &j.Tasks[n]
			n++
			counts[ft.Task.State]++
			t := &task{FinalTask: ft, id: fmt.Sprintf("%s.%s.%d (%s)", s.Name, w.Stage, index, ft.Task.ID), want: w, index: index}
			var err error
			if t.effects, err = parseEffects(c.h.Effects[fmt.Sprintf("%s.%s.%d", s.Name, w.Stage, index)]); err != nil {
				c.fail(historyWhole, t.id, "%v", err)
			}
			stages[w.Stage] = append(stages[w.Stage], t)
			c.task(s, t)
		}
		if w.Gang {
			c.gang(stages[w.Stage])
		}
		for _, t := range stages[w.Stage] {
			c.inputs(t, stages[w.From])
		}
	}
	if counts != j.Job.Counts || counts.State() != j.Job.State {
		c.fail(countsMatch, s.Name, "job %s is %s with %v; its tasks are %s with %v", j.Job.ID, j.Job.State, j.Job.Counts, counts.State(), counts)
	}
}

func (c *checker) task(s *Submission, t *task) {
	if !t.Task.State.Final() {
		c.fail(allEnd, t.id, "it is %s at attempt %d: %s %s", t.Task.State, t.Task.Attempt, t.Task.Reason, t.Task.Message)
		return
	}
	c.end(s, t)
	c.attempts(t)
	c.result(t)
	c.order(t)
	c.logs(t)
	c.artifacts(t)
	c.checkpoints(t)
	if s.Cancel > 0 {
		limit := s.Cancel + int64(t.want.Grace+t.want.Lease+slack)
		if n := len(t.effects); n > 0 && t.effects[n-1].At > limit {
			c.fail(cancelEnds, t.id, "it was cancelled at %s, and attempt %d still lives at %s, with a grace of %s and a lease of %s",
				clock(s.Cancel), t.effects[n-1].Attempt, clock(t.effects[n-1].At), t.want.Grace, t.want.Lease)
		}
	}
}

// end checks the final state against what the program of the task does.
func (c *checker) end(s *Submission, t *task) {
	w, x := t.want, &t.Task
	switch {
	case x.State == w.State && (x.Reason == w.Reason || w.State == muster.Succeeded):
		if w.Exit != 0 && (x.ExitCode == nil || *x.ExitCode != w.Exit) {
			c.fail(rightEnd, t.id, "it ended with exit code %v instead of %d", deref(x.ExitCode), w.Exit)
		}
		return
	case s.Cancel > 0 && (x.State == muster.Cancelled || x.State == muster.Skipped):
		return // also if it had not started
	case s.Cancel > 0 && x.State == muster.Failed && x.Reason == muster.ExitCode && slices.Contains(detailsOf(t.accepted(), "term"), ""):
		return // it ended by itself upon the signal
	case s.Cancel > 0 && x.State == muster.Failed && x.Reason == muster.ExitCode && slices.Contains(detailsOf(t.accepted(), "end"), fmt.Sprint(deref(x.ExitCode))):
		return // it had ended by itself before, and was not tried again
	case x.Reason == muster.CrashLimit && c.wasLostTooOften(t):
		return
	case x.Reason == muster.ExitCode && c.hadNoSpace(t):
		return
	}
	c.fail(rightEnd, t.id, "it ended as %s %s (%s, exit code %v), and its program as %s %s %d", x.State, x.Reason, x.Message, deref(x.ExitCode), w.State, w.Reason, w.Exit)
}

func deref(n *int) any {
	if n == nil {
		return "none"
	}
	return *n
}

// wasLostTooOften reports whether a task failed because its worker or shim was killed, or their network was interrupted, repeatedly. A full
// disk counts once for each worker: after that the task had others.
func (c *checker) wasLostTooOften(t *task) bool {
	lost := 1 // the last one, which has the reason of the task
	full := map[muster.WorkerID]bool{}
	for _, a := range t.Attempts {
		switch a.Reason {
		case muster.WorkerLost, muster.WorkerRestarted, muster.WorkerInternal:
			lost++
		case muster.DiskFull, muster.FetchFailed, muster.UploadFailed:
			lost += b2i(!full[a.Worker])
			full[a.Worker] = true
		default:
		}
	}
	return lost > crashLimit
}

// hadNoSpace reports whether the program itself gave up when its disk had just become full, or so shortly before there was
// space again, that its worker could not know why.
func (c *checker) hadNoSpace(t *task) bool {
	noSpaceAt := firstAt(t.accepted(), "nospace")
	return noSpaceAt > 0 && slices.ContainsFunc(c.h.Faults, func(f DoneFault) bool {
		return f.Kind == "full" && noSpaceAt > f.From && noSpaceAt < f.To+int64(time.Second) && (noSpaceAt > f.To-int64(3*time.Second) || noSpaceAt < f.From+int64(500*time.Millisecond))
	})
}

// attempts checks their numbers, and that each ran once.
func (c *checker) attempts(t *task) {
	for i, a := range t.Attempts {
		if a.ID.N != i+1 {
			c.fail(attemptsGrow, t.id, "its %d attempts include number %d in place %d", len(t.Attempts), a.ID.N, i+1)
			break
		}
	}
	if len(t.Attempts) != t.Task.Attempt {
		c.fail(attemptsGrow, t.id, "it is at attempt %d, and has %d", t.Task.Attempt, len(t.Attempts))
	}
	startCounts := map[int]int{}
	for _, e := range t.effects {
		if e.Kind == "begin" {
			startCounts[e.Attempt]++
		}
		if e.Attempt > t.Task.Attempt {
			c.fail(attemptsGrow, t.id, "attempt %d ran at %s, and the server knows of %d", e.Attempt, clock(e.At), t.Task.Attempt)
			return
		}
	}
	for n, times := range startCounts {
		if times > 1 {
			c.fail(attemptsGrow, t.id, "attempt %d ran %d times", n, times)
		}
	}
}

// result checks that what was accepted is what the last attempt made.
func (c *checker) result(t *task) {
	succeeded := 0
	for _, a := range t.Attempts {
		if a.Outcome == muster.AttemptSucceeded {
			succeeded++
		}
	}
	if t.Task.State != muster.Succeeded {
		if succeeded > 0 && !t.want.Gang {
			c.fail(oneResult, t.id, "an attempt succeeded, and the task is %s", t.Task.State)
		}
		return
	}
	effects := t.accepted()
	var r struct {
		Nonce   string `json:"nonce"`
		Attempt int    `json:"attempt"`
	}
	err := json.Unmarshal(t.Task.Result, &r)
	switch nonce := detailsOf(effects, "begin"); {
	case succeeded != 1 && !t.want.Gang:
		c.fail(oneResult, t.id, "%d attempts succeeded", succeeded)
	case err != nil || r.Attempt != t.Task.Attempt:
		c.fail(oneResult, t.id, "its result %s is not that of attempt %d", t.Task.Result, t.Task.Attempt)
	case len(nonce) == 0 || nonce[0] != r.Nonce:
		c.fail(oneResult, t.id, "its result has the nonce %s, and attempt %d made %v", r.Nonce, r.Attempt, nonce)
	case !slices.Contains(detailsOf(effects, "end"), "0"):
		c.fail(oneResult, t.id, "attempt %d succeeded, and did not run to its end", r.Attempt)
	}
}

// order checks that attempts follow each other, and leave nothing that continues.
func (c *checker) order(t *task) {
	last := 0
	for i, e := range t.effects {
		if e.Attempt < last {
			c.fail(noOverlap, t.id, "attempt %d still lives (%s) at %s, after attempt %d began at %s", e.Attempt, e.Kind, clock(e.At), last, clock(startOf(t.effects, last)))
			break
		}
		last = max(last, e.Attempt)
		if a := e.Attempt - 1; a >= 0 && a < len(t.Attempts) && t.Attempts[a].FinishedAt > 0 {
			end := int64(t.Attempts[a].FinishedAt)*int64(time.Millisecond) + int64(slack)
			if e.At > end && i > 0 {
				c.fail(leaseHolds, t.id, "attempt %d ended as %s %s at %s, and its process still lives (%s) at %s",
					e.Attempt, t.Attempts[a].Outcome, t.Attempts[a].Reason, clock(end-int64(slack)), e.Kind, clock(e.At))
				break
			}
		}
	}
}

func startOf(effects []Effect, attempt int) int64 {
	for _, e := range effects {
		if e.Attempt == attempt {
			return e.At
		}
	}
	return 0
}

// logs checks what each attempt printed: numbered lines.
func (c *checker) logs(t *task) {
	for _, a := range t.Attempts {
		rest, n := t.Logs[a.ID.N], 0
		for rest != "" && n < t.want.Lines {
			next := line(strings.Split(t.id, ".")[0], t.want, t.index, a.ID.N, n+1)
			if !strings.HasPrefix(rest, next) {
				break
			}
			rest, n = rest[len(next):], n+1
		}
		whole := a.Outcome == muster.AttemptSucceeded || a.Outcome == muster.AttemptFailed && a.Reason == muster.ExitCode && !slices.ContainsFunc(t.effects, func(e Effect) bool {
			return e.Attempt == a.ID.N && (e.Kind == "term" || e.Kind == "nospace")
		})
		next := line(strings.Split(t.id, ".")[0], t.want, t.index, a.ID.N, n+1)
		switch {
		case whole && (n < t.want.Lines || rest != ""):
			c.fail(logsWhole, t.id, "attempt %d ended by itself, and its log has %d of %d lines in order, then %q", a.ID.N, n, t.want.Lines, prefixOf(rest))
		case rest != "" && (n == t.want.Lines || !strings.HasPrefix(next, rest)): // else it ended within a line
			c.fail(logsWhole, t.id, "the log of attempt %d has %d lines in order, then %q", a.ID.N, n, prefixOf(rest))
		}
	}
}

// prefixOf is the beginning of a text.
func prefixOf(s string) string { return s[:min(len(s), 120)] }

func (c *checker) artifacts(t *task) {
	if t.Task.State != muster.Succeeded {
		return
	}
	effects := t.accepted()
	for _, artifact := range detailsOf(effects, "artifact") {
		name, sum, _ := strings.Cut(artifact, ":")
		if t.Files[name] != sum {
			c.fail(artifactsExact, t.id, "attempt %d wrote %s with the hash %s, and it is served with %q", t.Task.Attempt, name, sum, t.Files[name])
		}
	}
	if t.want.Artifact && len(detailsOf(effects, "artifact")) == 0 {
		c.fail(artifactsExact, t.id, "it succeeded without an artifact")
	}
}

// inputs checks the inputs of a task from the stage that it needs.
func (c *checker) inputs(t *task, from []*task) {
	startedAt := firstAt(t.effects, "begin")
	if t.want.From == "" || startedAt == 0 {
		return
	}
	for i, f := range from {
		effects := f.accepted()
		ended := int64(0)
		for _, e := range effects {
			if e.Kind == "end" {
				ended = e.At
			}
		}
		if f.Task.State != muster.Succeeded || startedAt < ended {
			c.fail(needsHold, t.id, "it began at %s, and %s is %s since %s", clock(startedAt), f.id, f.Task.State, clock(ended))
			continue
		}
		if t.Task.State != muster.Succeeded {
			continue
		}
		for kind, want := range map[string][]string{"input": detailsOf(effects, "artifact"), "ref": detailsOf(effects, "begin")} {
			if len(want) == 0 {
				continue // the accepted result belongs to no attempt: reported elsewhere
			}
			_, value, named := strings.Cut(want[0], ":")
			if !named {
				value = want[0]
			}
			if got := detailsOf(t.accepted(), kind); !slices.Contains(got, fmt.Sprintf("%d:%s", i, value)) {
				c.fail(bytesArrive, t.id, "its %s of %s is not %s: %v", kind, f.id, value, got)
			}
		}
	}
}

func (c *checker) gang(members []*task) {
	for _, m := range members {
		if m.Task.State.Final() && (m.Task.State == muster.Succeeded) != (members[0].Task.State == muster.Succeeded) ||
			m.Task.State == muster.Succeeded && m.Task.Attempt != members[0].Task.Attempt {
			c.fail(gangsWhole, m.id, "it is %s at attempt %d, and %s is %s at attempt %d", m.Task.State, m.Task.Attempt, members[0].id, members[0].Task.State, members[0].Task.Attempt)
		}
	}
}

// checkpoints checks where attempts continued from. What an attempt loads that came to another worker than the one before it is
// on the server, and no later attempt continues from less. What was loaded on the same worker may have been there only: a
// network that is away keeps it from the server.
func (c *checker) checkpoints(t *task) {
	var local, server int // what the attempt before loaded, and the most that is known to be on the server
	var worker muster.WorkerID
	wrote := map[string]bool{"0": true}
	for _, e := range t.effects {
		switch e.Kind {
		case "torn":
			c.fail(savedStates, t.id, "attempt %d was given half a checkpoint", e.Attempt)
		case "step":
			wrote[e.Detail] = true
		case "from":
			from, least, here := number(e.Detail), server, t.worker(e.Attempt)
			if here == worker {
				least = max(least, local)
			} else {
				server = max(server, from)
			}
			if !wrote[e.Detail] {
				c.fail(savedStates, t.id, "attempt %d continued from %s, which no earlier one had saved", e.Attempt, e.Detail)
			}
			if from < least {
				c.fail(savedStates, t.id, "attempt %d continued from %d, and an earlier one from %d", e.Attempt, from, least)
			}
			local, worker = from, here
		}
	}
}

// worker is the worker of an attempt, "" if the server does not know it.
func (t *task) worker(attempt int) muster.WorkerID {
	for i := range t.Attempts {
		if t.Attempts[i].ID.N == attempt {
			return t.Attempts[i].Worker
		}
	}
	return ""
}

func number(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

// events checks what each watcher saw, also against how it ended.
func (c *checker) events() {
	final := map[muster.TaskID]*FinalTask{}
	for _, list := range [][]FinalJob{c.h.Removed, c.h.Final} {
		for i := range list {
			for k := range list[i].Tasks {
				t := &list[i].Tasks[k]
				final[t.Task.ID] = t
			}
		}
	}
	for n, events := range c.h.Watchers {
		var last muster.Event
		state := map[muster.TaskID]muster.TaskState{}
		for _, e := range events {
			switch {
			case e.Epoch == "" || e.Type == muster.EventResync:
				clear(state) // what was missed is to be read again
				if e.Epoch != "" && e.Epoch == last.Epoch {
					c.fail(noEventMissed, fmt.Sprintf("watcher %d", n), "a resync at %d after %d without a restart of the server", e.Seq, last.Seq)
				}
			case last.Epoch != "" && (e.Epoch != last.Epoch || e.Seq != last.Seq+1):
				c.fail(noEventMissed, fmt.Sprintf("watcher %d", n), "event %s-%d follows %s-%d", e.Epoch, e.Seq, last.Epoch, last.Seq)
			}
			last = e
			if e.Type == muster.EventTask && e.Task != nil {
				c.event(n, e, state, final[*e.Task])
			}
		}
		for id, last := range state {
			if s := c.submissionOf(id.Job); n == 0 && !last.Final() && s != nil && len(c.jobs[s.Name]) == 0 {
				c.fail(liveStays, id.String(), "it is not there, and it was %s", last)
			}
		}
	}
}

// event checks one change of a task.
func (c *checker) event(n int, e muster.Event, state map[muster.TaskID]muster.TaskState, final *FinalTask) {
	var to muster.TaskState
	if err := to.UnmarshalText([]byte(e.State)); err != nil {
		c.fail(legalMoves, e.Task.String(), "watcher %d received the state %q", n, e.State)
		return
	}
	if from, known := state[*e.Task]; known && from != to && !from.CanBecome(to) {
		c.fail(legalMoves, e.Task.String(), "event %d says that it is %s, and before it was %s", e.Seq, to, from)
	}
	state[*e.Task] = to
	switch {
	case final == nil:
		if s := c.submissionOf(e.Job); e.Job != 0 && !c.canary(e.Job) && (s == nil || !s.mayBeGone()) {
			c.fail(eventsTrue, e.Task.String(), "event %s-%d is of a task that is not there", e.Epoch, e.Seq)
		}
	case to == muster.Succeeded && final.Task.State != muster.Succeeded:
		c.fail(eventsTrue, e.Task.String(), "event %s-%d says that it has succeeded, and it is %s", e.Epoch, e.Seq, final.Task.State)
	case e.Detail != nil && e.Detail.Attempt > final.Task.Attempt:
		c.fail(eventsTrue, e.Task.String(), "event %s-%d is of attempt %d, and it ended with %d", e.Epoch, e.Seq, e.Detail.Attempt, final.Task.Attempt)
	}
}

// canary reports whether a job is one of those with which the run checks the health of workers: those are submitted last, and are not in the
// list of jobs.
func (c *checker) canary(id muster.JobID) bool {
	for i := range c.h.Final {
		if c.h.Final[i].Job.ID == id {
			return false
		}
	}
	for i := range c.h.Jobs {
		if slices.Contains(c.h.Jobs[i].Acks, id) {
			return false
		}
	}
	return true
}

// submissionOf returns the submission of a job, nil if none was acknowledged with it.
func (c *checker) submissionOf(id muster.JobID) *Submission {
	for i := range c.h.Jobs {
		if slices.Contains(c.h.Jobs[i].Acks, id) {
			return &c.h.Jobs[i]
		}
	}
	return nil
}

// fleet checks what is not of a job.
func (c *checker) fleet() {
	for _, w := range c.h.Workers {
		if w.Running > w.Slots {
			c.fail(notOverfull, w.Name, "at %s it held %d tasks in %d slots", clock(w.At), w.Running, w.Slots)
		}
	}
	for _, desc := range c.h.Left {
		c.fail(nothingLeft, "workers", "%s", desc)
	}
	for _, desc := range c.h.Exits {
		c.fail(staysUp, "processes", "%s", desc)
	}
	before := map[muster.JobID]FinalJob{}
	for _, j := range c.h.Final {
		before[j.Job.ID] = j
	}
	for _, j := range c.h.Reloaded {
		old, known := before[j.Job.ID]
		delete(before, j.Job.ID)
		if !known {
			c.fail(reloadSame, j.Job.Name, "job %s was not there before the server was killed", j.Job.ID)
			continue
		}
		for i, t := range j.Tasks {
			if a, b := taskJSON(old, i), taskJSON(j, i); t.Task.State.Final() && a != b {
				c.fail(reloadSame, t.Task.ID.String(), "before the server was killed: %s; after: %s", a, b)
			}
		}
		if len(old.Tasks) != len(j.Tasks) || !reflect.DeepEqual(old.Job.Counts, j.Job.Counts) && j.Job.State.Final() {
			c.fail(reloadSame, j.Job.Name, "job %s counted %v, and counts %v", j.Job.ID, old.Job.Counts, j.Job.Counts)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		c.fail(reloadSame, before[id].Job.Name, "job %s is gone since the server was killed", id)
	}
}

// taskJSON is a task as JSON, without fields that may differ.
func taskJSON(j FinalJob, i int) string {
	if i >= len(j.Tasks) {
		return "none"
	}
	t := j.Tasks[i]
	b, err := json.Marshal([]any{t.Task, t.Attempts})
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
