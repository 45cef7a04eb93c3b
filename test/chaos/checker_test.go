//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

// t0 is when made histories begin, in milliseconds.
const t0 = 1_700_000_000_000

// ns is a time of a made history, in seconds from its begin.
func ns(sec float64) int64 { return t0*1_000_000 + int64(sec*1e9) }

func timeAt(sec float64) muster.Time { return muster.Time(t0 + int64(sec*1000)) }

// historyBuilder makes a history as a run would record it.
type historyBuilder struct {
	h    *History
	next muster.JobID
}

// job adds a job that was acknowledged, with these stages.
func (m *historyBuilder) job(name string, stages ...Want) *FinalJob {
	m.next++
	m.h.Jobs = append(m.h.Jobs, Submission{Name: name, Acks: []muster.JobID{m.next}, Stages: stages})
	j := FinalJob{Job: muster.Job{ID: m.next, Name: name}}
	num := 0
	for g := range stages {
		w := &stages[g]
		w.Grace, w.Lease = 2*time.Second, 10*time.Second
		for range w.Size {
			j.Tasks = append(j.Tasks, FinalTask{Task: muster.Task{
				ID: muster.TaskID{Job: m.next, Num: num}, Job: m.next, Group: g, State: w.State, Reason: w.Reason,
			}, Logs: map[int]string{}, Files: map[string]string{}})
			j.Job.Counts[w.State]++
			num++
		}
	}
	j.Job.State = j.Job.Counts.State()
	m.h.Final = append(m.h.Final, j)
	return &m.h.Final[len(m.h.Final)-1]
}

// attempt adds an attempt of a task that lived from begin to end, with what it appended meanwhile.
func (m *historyBuilder) attempt(j *FinalJob, task int, w *Want, index int, outcome muster.Outcome, reason muster.Reason, begin, end float64, effects ...string) {
	t := &j.Tasks[task]
	t.Task.Attempt++
	n := t.Task.Attempt
	a := muster.Attempt{ID: muster.AttemptID{Task: t.Task.ID, N: n}, Outcome: outcome, Reason: reason, FinishedAt: timeAt(end)}
	t.Attempts = append(t.Attempts, a)
	key := fmt.Sprintf("%s.%s.%d", j.Job.Name, w.Stage, index)
	nonce := fmt.Sprintf("nonce-%s-%d", t.Task.ID, n)
	var b strings.Builder
	fmt.Fprintf(&b, "begin %d %d %s\n", n, ns(begin), nonce)
	for i, e := range effects {
		kind, detail, _ := strings.Cut(e, " ")
		fmt.Fprintf(&b, "%s %d %d %s\n", kind, n, ns(begin+(end-begin)*float64(i+1)/float64(len(effects)+1)), detail)
		if name, sum, ok := strings.Cut(detail, ":"); ok && kind == "artifact" {
			t.Files[name] = sum
		}
	}
	if outcome == muster.AttemptSucceeded {
		fmt.Fprintf(&b, "end %d %d 0\n", n, ns(end))
		t.Task.Result = json.RawMessage(fmt.Sprintf(`{"nonce":%q,"attempt":%d}`, nonce, n))
	}
	m.h.Effects[key] += b.String()
	if outcome == muster.AttemptSucceeded || reason == muster.ExitCode {
		var log strings.Builder
		for i := range w.Lines {
			log.WriteString(line(j.Job.Name, w, index, n, i+1))
		}
		t.Logs[n] = log.String()
	}
}

// validHistory is a history in which all promises hold.
func validHistory() *History {
	m := &historyBuilder{h: &History{Effects: map[string]string{}, Calm: ns(60)}}
	ok := muster.AttemptSucceeded

	chain := []Want{{Stage: "first", Size: 1, State: muster.Succeeded, Lines: 3, Artifact: true}, {Stage: "second", Size: 1, State: muster.Succeeded, From: "first"}}
	j := m.job("j0-chain", chain...)
	m.attempt(j, 0, &chain[0], 0, ok, "", 1, 3, "artifact data.bin:aa11")
	m.attempt(j, 1, &chain[1], 0, ok, "", 4, 5, "input 0:aa11", "ref 0:nonce-1.0-1")

	again := Want{Stage: "main", Size: 1, State: muster.Succeeded, Lines: 5}
	j = m.job("j1-sleep", again)
	m.attempt(j, 0, &again, 0, muster.AttemptLost, muster.WorkerLost, 2, 14, "tick", "tick")
	j.Tasks[0].Logs[1] = line("j1-sleep", &again, 0, 1, 1) + line("j1-sleep", &again, 0, 1, 2) + "j1-sleep.main.0 a1 li"
	m.attempt(j, 0, &again, 0, ok, "", 15, 18, "tick")

	fails := Want{Stage: "main", Size: 1, State: muster.Failed, Reason: muster.ExitCode, Exit: 7, Lines: 2}
	j = m.job("j2-fail", fails)
	m.attempt(j, 0, &fails, 0, muster.AttemptFailed, muster.ExitCode, 2, 3, "end 7")
	seven := 7
	j.Tasks[0].Task.ExitCode = &seven

	long := Want{Stage: "main", Size: 1, State: muster.Succeeded}
	j = m.job("j3-stubborn", long)
	m.attempt(j, 0, &long, 0, muster.AttemptCancelled, muster.CancelledByUser, 5, 12, "tick", "tick")
	j.Tasks[0].Task.State, j.Tasks[0].Task.Reason = muster.Cancelled, muster.CancelledByUser
	j.Job.Counts[muster.Succeeded], j.Job.Counts[muster.Cancelled], j.Job.State = 0, 1, muster.JobCancelled
	m.h.Jobs[3].Cancel = ns(9)

	gang := Want{Stage: "main", Size: 2, Many: true, Gang: true, State: muster.Succeeded}
	j = m.job("j4-gang", gang)
	m.attempt(j, 0, &gang, 0, ok, "", 6, 8)
	m.attempt(j, 1, &gang, 1, ok, "", 6, 8)

	counts := Want{Stage: "main", Size: 1, State: muster.Succeeded}
	j = m.job("j5-checkpoint", counts)
	m.attempt(j, 0, &counts, 0, muster.AttemptLost, muster.WorkerLost, 7, 20, "from 0", "step 1", "step 2", "step 3")
	m.attempt(j, 0, &counts, 0, muster.AttemptFailed, muster.Preempted, 21, 24, "from 2", "step 3")
	m.attempt(j, 0, &counts, 0, ok, "", 25, 28, "from 3", "step 4")

	// Cancelled when its first attempt had failed.
	retried := Want{Stage: "main", Size: 1, State: muster.Succeeded}
	j = m.job("j7-retry", retried)
	m.attempt(j, 0, &retried, 0, muster.AttemptFailed, muster.ExitCode, 5, 6, "end 7")
	j.Tasks[0].Task.State, j.Tasks[0].Task.Reason, j.Tasks[0].Task.ExitCode = muster.Failed, muster.ExitCode, &seven
	j.Job.Counts[muster.Succeeded], j.Job.Counts[muster.Failed], j.Job.State = 0, 1, muster.JobFailed
	m.h.Jobs[6].Cancel = ns(5.5)

	// Its second attempt found on its worker what the network had kept from the server.
	j = m.job("j8-checkpoint", counts)
	m.attempt(j, 0, &counts, 0, muster.AttemptLost, muster.WorkerLost, 7, 20, "from 0", "step 1", "step 2")
	m.attempt(j, 0, &counts, 0, muster.AttemptLost, muster.WorkerLost, 21, 24, "from 2", "step 3")
	m.attempt(j, 0, &counts, 0, ok, "", 35, 38, "from 0", "step 1")
	j.Tasks[0].Attempts[2].Worker = "w-another"

	m.h.Jobs = append(m.h.Jobs, Submission{Name: "j6-quick", Refused: []string{string(muster.StorageFull) + ": the disk is full"}, Stages: []Want{again}})
	m.retention()
	seq := map[string]uint64{}
	appendEvent := func(epoch string, kind muster.EventType, task string, state muster.TaskState, attempt int) {
		seq[epoch]++
		e := muster.Event{Epoch: epoch, Seq: seq[epoch], Type: kind}
		if kind == muster.EventTask {
			id, err := muster.ParseTaskID(task)
			if err != nil {
				panic(err)
			}
			e.Task, e.Job, e.State, e.Detail = &id, id.Job, state.String(), &muster.TaskDetail{Attempt: attempt}
		}
		m.h.Watchers[0] = append(m.h.Watchers[0], e)
	}
	m.h.Watchers = [][]muster.Event{nil}
	appendEvent("e1", muster.EventResync, "", 0, 0)
	appendEvent("e1", muster.EventTask, "2.0", muster.Queued, 0)
	appendEvent("e1", muster.EventTask, "2.0", muster.Assigned, 1)
	appendEvent("e1", muster.EventTask, "2.0", muster.Running, 1)
	appendEvent("e2", muster.EventResync, "", 0, 0)
	appendEvent("e2", muster.EventTask, "2.0", muster.Queued, 1)
	appendEvent("e2", muster.EventTask, "2.0", muster.Assigned, 2)
	appendEvent("e2", muster.EventTask, "2.0", muster.Running, 2)
	appendEvent("e2", muster.EventTask, "2.0", muster.Succeeded, 2)
	m.h.Workers = []WorkerSample{{Name: "worker0", Running: 6, Slots: 6}}
	m.h.Reloaded = reloaded(m.h.Final)
	return m.h
}

// retention adds a job that was removed after its end, and jobs of the limited project: one that is gone, three that its policy kept, and one
// that a user keeps.
func (m *historyBuilder) retention() {
	want := Want{Stage: "main", Size: 1, State: muster.Succeeded}
	j := m.job("j9-quick", want)
	m.attempt(j, 0, &want, 0, muster.AttemptSucceeded, "", 5, 6)
	m.h.Jobs[9].RemovalSent, m.h.Jobs[9].Removed = true, ns(8)
	last := len(m.h.Final) - 1
	m.h.Final, m.h.Removed = m.h.Final[:last], []FinalJob{m.h.Final[last]}
	for n := range 5 {
		name := fmt.Sprintf("j%d-quick", 10+n)
		j := m.job(name, want)
		m.attempt(j, 0, &want, 0, muster.AttemptSucceeded, "", 10+float64(n), 11+float64(n))
		j.Job.FinishedAt = timeAt(11 + float64(n))
		m.h.Jobs[10+n].Project = limitedProject
	}
	m.h.Jobs[11].Kept = ns(12)
	first := len(m.h.Final) - 5
	m.h.Final = slices.Delete(m.h.Final, first, first+1)
}

// reloaded is a copy of jobs as a server shows them that was killed.
func reloaded(jobs []FinalJob) []FinalJob {
	var list []FinalJob
	for _, j := range jobs {
		j.Tasks = slices.Clone(j.Tasks)
		for i := range j.Tasks {
			j.Tasks[i].Logs, j.Tasks[i].Files = nil, nil
		}
		list = append(list, j)
	}
	return list
}

// TestCheckerAcceptsAGoodHistory checks that the checker does not cry wolf.
func TestCheckerAcceptsAGoodHistory(t *testing.T) {
	for _, v := range check(validHistory()) {
		t.Errorf("%s: %s: %s", v.Invariant, v.Subject, v.Evidence)
	}
}

// edit replaces a part of an effect file that must be there.
func edit(h *History, file, was, is string) {
	if !strings.Contains(h.Effects[file], was) {
		panic(fmt.Sprintf("there is no %q in %s:\n%s", was, file, h.Effects[file]))
	}
	h.Effects[file] = strings.Replace(h.Effects[file], was, is, 1)
}

// drop removes a job from the final state.
func (h *History) drop(name string) {
	gone := func(j FinalJob) bool { return j.Job.Name == name }
	h.Final, h.Reloaded = slices.DeleteFunc(h.Final, gone), slices.DeleteFunc(h.Reloaded, gone)
}

// broken are histories that each break a promise.
var broken = []struct {
	promise invariant
	name    string
	change  func(h *History)
}{
	{noJobLost, "a job is gone", func(h *History) { h.Final = h.Final[1:] }},
	{noJobLost, "a task is gone", func(h *History) { h.Final[0].Tasks = h.Final[0].Tasks[:1] }},
	{oneJobForKey, "a repeated submission made a second job", func(h *History) {
		j := h.Final[2]
		j.Job.ID = 99
		h.Final = append(h.Final, j)
	}},
	{oneJobForKey, "two clients got two jobs", func(h *History) { h.Jobs[2].Acks = append(h.Jobs[2].Acks, 99) }},
	{noTrace, "a job was made all the same", func(h *History) { h.Jobs[2].Acks, h.Jobs[2].Refused = nil, h.Jobs[8].Refused }},
	{allEnd, "a task is queued forever", func(h *History) { h.Final[1].Tasks[0].Task.State = muster.Queued }},
	{rightEnd, "a good program failed", func(h *History) {
		h.Final[1].Tasks[0].Task.State, h.Final[1].Tasks[0].Task.Reason = muster.Failed, muster.DiskFull
	}},
	{rightEnd, "a wrong exit code", func(h *History) { n := 8; h.Final[2].Tasks[0].Task.ExitCode = &n }},
	{rightEnd, "given up for a full disk", func(h *History) {
		x := &h.Final[1].Tasks[0]
		x.Task.State, x.Task.Reason = muster.Failed, muster.CrashLimit
		for n := 3; n < 10; n++ {
			x.Attempts = append(x.Attempts, muster.Attempt{ID: muster.AttemptID{Task: x.Task.ID, N: n}, Outcome: muster.AttemptFailed, Reason: muster.DiskFull})
		}
	}},
	{rightEnd, "given up too early", func(h *History) {
		x := &h.Final[1].Tasks[0]
		x.Task.State, x.Task.Reason = muster.Failed, muster.CrashLimit
		for n := 2; n < 6; n++ {
			x.Attempts = append(x.Attempts[:n-1], muster.Attempt{ID: muster.AttemptID{Task: x.Task.ID, N: n}, Outcome: muster.AttemptLost, Reason: muster.WorkerLost})
		}
		x.Attempts[4].Outcome, x.Attempts[4].Reason = muster.AttemptFailed, muster.CrashLimit
	}},
	{rightEnd, "cancelled without a request", func(h *History) { h.Jobs[3].Cancel = 0 }},
	{oneResult, "two attempts succeeded", func(h *History) { h.Final[1].Tasks[0].Attempts[0].Outcome = muster.AttemptSucceeded }},
	{oneResult, "the result of an earlier attempt", func(h *History) {
		h.Final[1].Tasks[0].Task.Result = json.RawMessage(`{"nonce":"nonce-2.0-1","attempt":1}`)
	}},
	{oneResult, "the result of nobody", func(h *History) { h.Final[1].Tasks[0].Task.Result = json.RawMessage(`{"nonce":"x","attempt":2}`) }},
	{oneResult, "it did not run to its end", func(h *History) { edit(h, "j1-sleep.main.0", fmt.Sprintf("end 2 %d 0\n", ns(18)), "") }},
	{oneResult, "a success was overruled", func(h *History) { h.Final[2].Tasks[0].Attempts[0].Outcome = muster.AttemptSucceeded }},
	{attemptsGrow, "an attempt is missing", func(h *History) {
		x := &h.Final[1].Tasks[0]
		x.Attempts = x.Attempts[1:]
	}},
	{attemptsGrow, "an attempt ran twice", func(h *History) { edit(h, "j1-sleep.main.0", "begin 2", "begin 1") }},
	{attemptsGrow, "an attempt that the server does not know", func(h *History) { h.Effects["j2-fail.main.0"] += fmt.Sprintf("begin 2 %d x\n", ns(4)) }},
	{noOverlap, "the first attempt lives on", func(h *History) { h.Effects["j1-sleep.main.0"] += fmt.Sprintf("tick 1 %d \n", ns(18)) }},
	{leaseHolds, "a process outlives its end", func(h *History) { h.Effects["j1-sleep.main.0"] += fmt.Sprintf("orphan 2 %d \n", ns(30)) }},
	{leaseHolds, "a lost attempt lives on", func(h *History) {
		edit(h, "j5-checkpoint.main.0", "begin 2 ", fmt.Sprintf("tick 1 %d \nbegin 2 ", ns(35)))
	}},
	{needsHold, "the second stage did not wait", func(h *History) {
		edit(h, "j0-chain.second.0", strconv.FormatInt(ns(4), 10), strconv.FormatInt(ns(2), 10))
	}},
	{needsHold, "the first stage did not succeed", func(h *History) { h.Final[0].Tasks[0].Task.State = muster.Failed }},
	{bytesArrive, "other bytes", func(h *History) { edit(h, "j0-chain.second.0", "0:aa11", "0:bb22") }},
	{bytesArrive, "another result", func(h *History) { edit(h, "j0-chain.second.0", "0:nonce-1.0-1", "0:") }},
	{artifactsExact, "other bytes", func(h *History) { h.Final[0].Tasks[0].Files["data.bin"] = "cc33" }},
	{artifactsExact, "no artifact", func(h *History) { delete(h.Final[0].Tasks[0].Files, "data.bin") }},
	{logsWhole, "a line is missing", func(h *History) {
		x := h.Final[0].Tasks[0].Logs
		x[1] = strings.Replace(x[1], "line 2\n", "", 1)
	}},
	{logsWhole, "the end is missing", func(h *History) {
		x := h.Final[1].Tasks[0].Logs
		x[2] = x[2][:len(x[2])-5]
	}},
	{logsWhole, "a line came twice", func(h *History) {
		x := h.Final[1].Tasks[0].Logs
		x[1] = x[1][:strings.Index(x[1], "\n")+1] + x[1]
	}},
	{logsWhole, "lines of another task", func(h *History) { h.Final[3].Tasks[0].Logs[1] = h.Final[0].Tasks[0].Logs[1] }},
	{cancelEnds, "it continues", func(h *History) { h.Effects["j3-stubborn.main.0"] += fmt.Sprintf("tick 1 %d \n", ns(50)) }},
	{countsMatch, "a wrong count", func(h *History) { h.Final[0].Job.Counts[muster.Failed]++ }},
	{countsMatch, "a wrong state", func(h *History) { h.Final[0].Job.State = muster.JobFailed }},
	{legalMoves, "an illegal move", func(h *History) { h.Watchers[0][8].State, h.Watchers[0][7].State = "running", "succeeded" }},
	{legalMoves, "an unknown state", func(h *History) { h.Watchers[0][7].State = "strolling" }},
	{noEventMissed, "a gap", func(h *History) { h.Watchers[0] = slices.Delete(h.Watchers[0], 2, 3) }},
	{noEventMissed, "an event twice", func(h *History) { h.Watchers[0] = slices.Insert(h.Watchers[0], 2, h.Watchers[0][2]) }},
	{noEventMissed, "a resync without a restart of the server", func(h *History) { h.Watchers[0][6].Type = muster.EventResync }},
	{noEventMissed, "a restart without a resync", func(h *History) { h.Watchers[0] = slices.Delete(h.Watchers[0], 4, 5) }},
	{eventsTrue, "a success was taken back", func(h *History) { h.Watchers[0][3].State, *h.Watchers[0][3].Task = "succeeded", muster.TaskID{Job: 3} }},
	{eventsTrue, "an attempt was taken back", func(h *History) { h.Watchers[0][8].Detail.Attempt = 3 }},
	{eventsTrue, "a job was taken back", func(h *History) {
		h.Watchers[0][1].Job, h.Watchers[0][1].Task = 6, &muster.TaskID{Job: 6, Num: 1}
	}},
	{gangsWhole, "one member failed", func(h *History) { h.Final[4].Tasks[1].Task.State = muster.Failed }},
	{gangsWhole, "members of two attempts", func(h *History) { h.Final[4].Tasks[1].Task.Attempt = 2 }},
	{savedStates, "half a checkpoint", func(h *History) { h.Effects["j5-checkpoint.main.0"] += fmt.Sprintf("torn 3 %d \n", ns(28)) }},
	{savedStates, "a checkpoint of nobody", func(h *History) { edit(h, "j5-checkpoint.main.0", "2\nstep 2", "17\nstep 2") }},
	{savedStates, "an older checkpoint", func(h *History) {
		from := fmt.Sprintf("from 3 %d 3", ns(26))
		edit(h, "j5-checkpoint.main.0", from, from[:len(from)-1]+"1")
	}},
	{savedStates, "an older checkpoint than one from the server", func(h *History) {
		edit(h, "j5-checkpoint.main.0", fmt.Sprintf("from 3 %d 3", ns(26)), fmt.Sprintf("from 3 %d 1", ns(26)))
		h.Final[5].Tasks[0].Attempts[1].Worker = "w-another"
	}},
	{rightEnd, "cancelled, and another exit code than its program's", func(h *History) { edit(h, "j7-retry.main.0", "7\n", "6\n") }},
	{notOverfull, "a task too many", func(h *History) { h.Workers[0].Running = 7 }},
	{reloadSame, "a task changed", func(h *History) { h.Reloaded[1].Tasks[0].Task.Attempt = 1 }},
	{reloadSame, "a job is gone", func(h *History) { h.Reloaded = h.Reloaded[1:] }},
	{reloadSame, "a job came back", func(h *History) { j := h.Reloaded[0]; j.Job.ID = 77; h.Reloaded = append(h.Reloaded, j) }},
	{nothingLeft, "a process", func(h *History) { h.Left = []string{"worker0: process 17"} }},
	{staysUp, "a panic", func(h *History) { h.Exits = []string{"server.log: panic: nil"} }},
	{keptStays, "a kept job is gone", func(h *History) { h.drop("j11-quick") }},
	{keptStays, "a kept job was removed", func(h *History) { h.Jobs[11].Removed, h.Jobs[11].RemovalSent = ns(14), true }},
	{keptStays, "a limit removed too many", func(h *History) {
		h.drop("j12-quick")
		h.drop("j13-quick")
	}},
	{keptStays, "a limit removed a younger one", func(h *History) { h.drop("j13-quick") }},
	{noJobLost, "a job that was unkept, and is in no limited project", func(h *History) {
		h.Jobs[11].Project, h.Jobs[11].Unkept = "", true
		h.drop("j11-quick")
	}},
	{liveStays, "a job was removed before its end", func(h *History) { h.Jobs[9].Removed = ns(5.5) }},
	{liveStays, "a removed job has no end", func(h *History) {
		h.Removed = nil
		edit(h, "j9-quick.main.0", fmt.Sprintf("end 1 %d 0\n", ns(6)), "")
	}},
	{liveStays, "a running job of the limited project was removed", func(h *History) {
		h.Watchers[0][7].Job, h.Watchers[0][7].Task = h.Jobs[10].Acks[0], &muster.TaskID{Job: h.Jobs[10].Acks[0]}
	}},
	{oneResult, "a removed job had the result of nobody", func(h *History) { h.Removed[0].Tasks[0].Task.Result = json.RawMessage(`{"nonce":"x","attempt":1}`) }},
	{goneWhole, "a removed job is there", func(h *History) { h.Final = append(h.Final, h.Removed[0]) }},
	{goneWhole, "its logs are there", func(h *History) { h.Leftover = []string{"job 9: its logs are there"} }},
	{blobsStay, "a blob is missing", func(h *History) { h.Missing = []string{"task 1.0, attempt 1: there is no blob aa11"} }},
	{historyWhole, "half a line", func(h *History) { h.Effects["j2-fail.main.0"] += "tick 1 17" }},
}

// TestCheckerFindsViolations checks that the checker reports a violation of each promise.
func TestCheckerFindsViolations(t *testing.T) {
	covered := map[invariant]bool{}
	for _, b := range broken {
		covered[b.promise] = true
		t.Run(strings.ReplaceAll(string(b.promise)+"/"+b.name, " ", "_"), func(t *testing.T) {
			h := validHistory()
			b.change(h)
			found := check(h)
			if !slices.ContainsFunc(found, func(v violation) bool { return v.Invariant == b.promise }) {
				t.Errorf("the checker does not see it: %v", found)
			}
		})
	}
	for _, p := range invariants {
		if !covered[p] {
			t.Errorf("no history shows that the checker sees a violation of: %s", p)
		}
	}
}

// TestPlanIsDeterministic checks that a seed results in one plan, that a longer run only adds to it, and that excluding faults changes no
// others.
func TestPlanIsDeterministic(t *testing.T) {
	text := func(p plan) string { return fmt.Sprintf("%+v", p) }
	p := makePlan(7, time.Minute, nil)
	if text(p) != text(makePlan(7, time.Minute, nil)) {
		t.Error("one seed created two plans")
	}
	if text(p) == text(makePlan(8, time.Minute, nil)) {
		t.Error("two seeds created the same plan")
	}
	longer := makePlan(7, 5*time.Minute, nil)
	early := slices.DeleteFunc(slices.Clone(longer.Faults), func(f fault) bool { return f.At >= time.Minute })
	if !slices.Equal(early, p.Faults) || !slices.Equal(longer.Jobs[:len(p.Jobs)], p.Jobs) {
		t.Error("a longer run has another begin")
	}
	filtered := makePlan(7, 5*time.Minute, []string{"net", "kill"})
	rest := slices.DeleteFunc(slices.Clone(longer.Faults), func(f fault) bool { return strings.Contains(f.Target, "net") || f.Kind == "kill" })
	if !slices.Equal(filtered.Faults, rest) {
		t.Error("leaving faults out changes others")
	}
	if !slices.Equal(longer.Prunes[:len(p.Prunes)], p.Prunes) {
		t.Error("a longer run has other prunes")
	}
	shapesSeen, kindsSeen, retainedSeen := map[string]bool{}, map[string]bool{}, map[retained]bool{}
	for seed := range uint64(5) {
		p := makePlan(seed, 5*time.Minute, nil)
		for _, it := range p.Jobs {
			shapesSeen[it.Shape], retainedSeen[it.Retained] = true, true
			if spec, wants := it.spec("/effects"); len(spec.Tasks) == 0 || len(wants) != len(spec.Tasks) {
				t.Errorf("job %s has %d stages and %d wants", it.Name, len(spec.Tasks), len(wants))
			}
		}
		for _, f := range p.Faults {
			kindsSeen[f.Kind] = true
		}
	}
	for _, x := range shapes {
		if !shapesSeen[x.name] {
			t.Errorf("no job of five runs has the shape %s", x.name)
		}
	}
	for _, x := range []retained{byPolicy, limited, keptOnly, unkept, removed, removedLive, removedKept} {
		if !retainedSeen[x] {
			t.Errorf("no job of five runs is retained as %q", x)
		}
	}
	for _, kinds := range targets() {
		for _, x := range kinds {
			if !kindsSeen[x.kind] {
				t.Errorf("no run of five has the fault %s", x.kind)
			}
		}
	}
}
