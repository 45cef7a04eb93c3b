package sweeper_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/retention"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/sweeper"
	"github.com/muster-dev/muster/internal/tasklog"
)

// errKilled is what every call of a killed server returns.
var errKilled = errors.New("the server was killed")

// world is a server's stores under a workload of clients and workers, in virtual time. The stores are real; what the API and the engine
// do with them is modelled: they check, touch and commit in their order, with pauses between.
type world struct {
	t      *testing.T
	dir    string
	mutant mutant
	quiet  bool // no pauses between effects
	server retention.ServerPolicy
	policy retention.Policy

	mu      sync.Mutex // of the fields below, and the engine's order
	rnd     *rand.Rand
	jobs    map[muster.JobID]*model
	next    muster.JobID
	fatal   error // what the world found
	removed map[muster.JobID]bool

	*process
}

// mutant breaks one rule of the design.
type mutant string

const (
	noTouch     mutant = "a submit does not touch files that exist"
	noWorkers   mutant = "uploads that are not reported yet are no references"
	wrongOrder  mutant = "attempts are read before tasks"
	removedRows mutant = "rows of removed jobs are deleted before their logs"
)

// process is one incarnation of the server.
type process struct {
	store  *sqlite.Store
	blobs  *blob.Dir
	logs   *tasklog.Dir
	ctx    context.Context
	cancel context.CancelCauseFunc
	steps  int // until it is killed
	start  time.Time
	clock  muster.Time
	urge   chan struct{}  // makes a client that waits retry jobs now
	rivals sync.WaitGroup // submits that race with the sweep
}

// model is what the clients know about a job.
type model struct {
	id        muster.JobID
	worker    muster.WorkerID
	assigned  muster.Time
	tree      []string // the folder's blobs, with the list
	artifacts [][]byte // uploaded by the worker, and acknowledged
	saved     []string // the blobs of the checkpoint
	ended     bool
	attempts  int
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// fail records what is wrong, once.
func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fatal == nil {
		w.fatal = err
	}
}

// int returns a random number below n.
func (w *world) int(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rnd.IntN(n)
}

// step pauses, so that others continue, and returns errKilled if the server is dead, or dies now.
func (w *world) step(p *process, longest time.Duration) error {
	if !w.quiet {
		time.Sleep(time.Duration(w.int(int(longest/time.Second)+1)) * time.Second)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.steps--; p.steps == 0 {
		p.cancel(errKilled)
	}
	return context.Cause(p.ctx)
}

// start opens the stores, as a server does that starts.
func (w *world) start(steps int) {
	w.t.Helper()
	p := &process{steps: steps, start: time.Now(), clock: muster.NewTime(time.Now()), urge: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	var err error
	if p.store, err = sqlite.Open(w.t.Context(), filepath.Join(w.dir, "muster.db"), sqlite.Options{}); err != nil {
		w.t.Fatal(err)
	}
	if p.blobs, err = blob.OpenDir(filepath.Join(w.dir, "blobs")); err != nil {
		w.t.Fatal(err)
	}
	if p.logs, err = tasklog.OpenIndexedDir(filepath.Join(w.dir, "logs")); err != nil {
		w.t.Fatal(err)
	}
	w.process = p
}

func (w *world) close() {
	w.t.Helper()
	if err := errors.Join(w.store.Close(), w.logs.Close()); err != nil {
		w.t.Fatal(err)
	}
}

// run lets the server, clients and workers live until it is killed, or for a time.
func (w *world) run(steps int, life time.Duration, clients int) {
	w.start(steps)
	s := sweeper.New(sweeper.Config{
		Store: faultyStore{w.store, w, w.process}, Engine: &modelEngine{w, w.process}, Logs: faultyLogs{w.logs, w, w.process}, Blobs: faultyBlobs{w.blobs, w, w.process},
		Options: w.policy, Server: w.server, Log: slog.New(slog.DiscardHandler),
	})
	var group sync.WaitGroup
	group.Go(func() { _ = s.Run(w.ctx) })
	for i := range clients {
		group.Go(func() { w.client(w.process, s, i) })
	}
	select {
	case <-time.After(life):
	case <-w.ctx.Done():
	}
	w.cancel(errKilled)
	group.Wait()
	w.rivals.Wait()
	if err := w.check(); err != nil {
		w.fail(err)
	}
	w.close()
}

// client does random things until the server is gone.
func (w *world) client(p *process, s *sweeper.Sweeper, number int) {
	worker := muster.WorkerID("w" + strconv.Itoa(number))
	for p.ctx.Err() == nil {
		var err error
		select {
		case <-time.After(time.Duration(w.int(6*60)) * time.Minute):
			err = w.act(p, s, worker)
		case <-p.urge:
			for range 4 { // some jobs did not fail
				err = errors.Join(err, w.revive(p, worker))
			}
		}
		if err != nil && p.ctx.Err() == nil {
			w.fail(err)
		}
	}
}

// act does one random thing.
func (w *world) act(p *process, s *sweeper.Sweeper, worker muster.WorkerID) error {
	job := w.openJob(worker)
	switch n := w.int(20); {
	case n == 0:
		return w.removeOne(p, s)
	case n == 1:
		return w.keepOne(p, s)
	case n == 2 || n == 3:
		return w.revive(p, worker)
	case job == nil || n < 6:
		return w.submit(p, worker, w.files(), longCall)
	case n < 10:
		return w.save(p, job)
	case n < 14:
		return w.upload(p, job)
	case n < 16:
		return w.retry(p, job)
	default:
		return w.report(p, job)
	}
}

// rival submits a job with a file that a sweep is about to remove, as fast as the sweep.
func (w *world) rival(p *process, sum string) {
	for n := range folderFiles {
		if data := folderFile(n); hashOf(data) == sum && !w.quiet && w.int(3) == 0 {
			p.rivals.Go(func() {
				err := w.submit(p, muster.WorkerID("w"+strconv.Itoa(w.int(clients))), [][]byte{data}, time.Second)
				if err != nil && p.ctx.Err() == nil {
					w.fail(err)
				}
			})
		}
	}
}

// openJob returns an unfinished job of a worker, or nil.
func (w *world) openJob(worker muster.WorkerID) *model {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.next + 1 {
		if j := w.jobs[id]; j != nil && !j.ended && j.worker == worker {
			return j
		}
	}
	return nil
}

// folderFiles is the number of different files in folders: few, so that jobs share them.
const folderFiles = 12

func folderFile(n int) []byte { return []byte("file " + strconv.Itoa(n)) }

// files returns some files.
func (w *world) files() (list [][]byte) {
	for range 1 + w.int(3) {
		list = append(list, folderFile(w.int(folderFiles)))
	}
	return list
}

// treeOf returns the list of a folder's files.
func treeOf(files [][]byte) []byte {
	var tree muster.Tree
	for i, f := range files {
		tree.Files = append(tree.Files, muster.File{Path: strconv.Itoa(i), Size: int64(len(f)), SHA256: hashOf(f)})
	}
	b, _ := json.Marshal(tree)
	return b
}

// longCall is how long a slow client needs for a call.
const longCall = 2 * time.Minute

// put uploads a blob unless it exists, as the API and its clients do, in calls that take at most a time.
func (w *world) put(p *process, holder store.Grantee, data []byte, longest time.Duration) error {
	if err := w.step(p, longest); err != nil {
		return err
	}
	sum := hashOf(data)
	_, err := w.touch(p, sum)
	if muster.CodeOf(err) == muster.NotFound && err != nil {
		err = p.blobs.ForOwner(string(holder)).Put(p.ctx, sum, 0, bytes.NewReader(data))
	}
	if err != nil {
		return err
	}
	if err := w.step(p, longest/2); err != nil {
		return err
	}
	return p.store.GrantBlobs(p.ctx, []store.Grantee{holder}, []store.Blob{{SHA256: sum, Size: int64(len(data))}})
}

func (w *world) touch(p *process, sum string) (int64, error) {
	if w.mutant == noTouch {
		return p.blobs.Stat(p.ctx, sum)
	}
	return p.blobs.Touch(p.ctx, sum)
}

// touchAll touches blobs, and reports whether all exist.
func (w *world) touchAll(p *process, sums []string) (bool, error) {
	for _, sum := range sums {
		if _, err := w.touch(p, sum); err != nil {
			if muster.CodeOf(err) == muster.NotFound {
				return false, nil
			}
			return false, err
		}
	}
	return true, w.step(p, 30*time.Second)
}

func sums(blobs ...[]byte) (list []string) {
	for _, b := range blobs {
		list = append(list, hashOf(b))
	}
	return list
}

// submit uploads a folder and submits a job with it. A worker starts it at once.
func (w *world) submit(p *process, worker muster.WorkerID, files [][]byte, longest time.Duration) error {
	tree := treeOf(files)
	all := append(files, tree)
	for range 3 {
		for _, f := range all {
			if err := w.put(p, store.ProjectGrantee(muster.DefaultProject), f, longest); err != nil {
				return err
			}
		}
		if ok, err := w.touchAll(p, sums(all...)); err != nil {
			return err
		} else if !ok {
			continue // the client uploads again
		}
		return w.commitJob(p, worker, sums(all...))
	}
	return errors.New("files were removed during three submits of minutes")
}

func (w *world) commitJob(p *process, worker muster.WorkerID, tree []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := muster.NewTime(time.Now())
	w.next++
	j := &model{id: w.next, worker: worker, assigned: now, tree: tree}
	job, group := jobRows(j.id, tree[len(tree)-1], now)
	group.Materialized = 1
	task := taskRow(&job, &group, j, muster.Running, now)
	if err := p.store.Commit(p.ctx, newJob(&job, &group, &task)); err != nil {
		w.next-- // the commit of a killed server: its client does not know the job
		if _, readErr := p.store.Job(context.Background(), j.id); readErr == nil {
			w.next++
			w.jobs[j.id] = j
		}
		return err
	}
	w.jobs[j.id] = j
	_, err := p.logs.Append(p.ctx, muster.AttemptID{Task: muster.TaskID{Job: j.id}, N: 1}, 0, []byte("hello\n"))
	return err
}

// newJob returns the commit of a submit. The totals only say that the project has jobs.
func newJob(j *muster.Job, g *muster.Group, t *muster.Task) *store.Batch {
	return &store.Batch{Rows: muster.Rows{
		Jobs: []muster.Job{*j}, Groups: []muster.Group{*g}, Tasks: []muster.Task{*t}, Totals: []muster.ProjectTotal{{Project: j.Project, Counts: j.Counts}},
	}}
}

func jobRows(id muster.JobID, tree string, now muster.Time) (muster.Job, muster.Group) {
	g := muster.Group{Job: id, Name: "stage", Size: 1, UnmaterializedState: muster.Queued, UnmaterializedSince: now}
	return muster.Job{
		ID: id, UID: "job-" + id.String(), Name: "job", Project: muster.DefaultProject, Priority: 50, CreatedAt: now,
		Spec: &muster.Spec{Name: "job", Tasks: []muster.TaskSpec{{Name: "stage", Kind: muster.KindNoop, Files: "sha256:" + tree}}},
	}, g
}

// taskRow returns the row of a job's task in a state, and counts it.
func taskRow(j *muster.Job, g *muster.Group, m *model, state muster.TaskState, now muster.Time) muster.Task {
	t := store.SynthesizeTask(j, g, 0)
	t.Synthesized = false
	t.State, t.Reason, t.Message, t.Attempt, t.Worker, t.AssignedAt, t.StartedAt = state, "", "", m.attempts+1, m.worker, m.assigned, m.assigned
	t.QueuedAt = m.assigned
	if len(m.saved) > 0 {
		t.Checkpoint = m.saved[len(m.saved)-1]
	}
	g.Counts = muster.Counts{}
	g.Counts[state] = 1
	j.Counts = g.Counts
	j.State = j.Counts.State()
	j.FinishedAt = 0
	if state.Final() {
		t.FinishedAt, j.FinishedAt, g.FinishedAt = now, now, now
	}
	return t
}

// upload uploads an artifact of a running task, long before the report.
func (w *world) upload(p *process, j *model) error {
	data := []byte("artifact " + strconv.Itoa(w.int(30)))
	if err := w.put(p, store.WorkerGrantee(j.worker), data, longCall); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	j.artifacts = append(j.artifacts, data)
	return nil
}

// save uploads a checkpoint of a running task and reports it. Files of the last one are not uploaded again.
func (w *world) save(p *process, j *model) error {
	files := w.files()
	tree := treeOf(files)
	for _, f := range append(files, tree) {
		if slices.Contains(j.saved, hashOf(f)) {
			continue
		}
		if err := w.put(p, store.WorkerGrantee(j.worker), f, longCall); err != nil {
			return err
		}
	}
	all := sums(append(files, tree)...)
	ok, err := w.touchAll(p, all)
	if err != nil {
		return err
	}
	if !ok {
		return errors.New("files of a checkpoint were removed before it was reported")
	}
	return w.commitTask(p, j, muster.Running, nil, func() { j.saved = all })
}

// retry ends the attempt, whose artifacts stay with it, and begins the next one on the same worker.
func (w *world) retry(p *process, j *model) error {
	artifacts, err := w.reported(p, j)
	if err != nil {
		return err
	}
	past := muster.Attempt{ID: muster.AttemptID{Task: muster.TaskID{Job: j.id}, N: j.attempts + 1}, Worker: j.worker, Outcome: muster.AttemptFailed, Artifacts: artifacts,
		AssignedAt: j.assigned, StartedAt: j.assigned, FinishedAt: muster.NewTime(time.Now())}
	return w.commitTask(p, j, muster.Running, func(rows *muster.Rows, _ *muster.Task) { rows.Attempts = append(rows.Attempts, past) }, func() {
		j.attempts++
		j.assigned = muster.NewTime(time.Now())
		j.artifacts = nil
	})
}

// report ends a job.
func (w *world) report(p *process, j *model) error {
	artifacts, err := w.reported(p, j)
	if err != nil {
		return err
	}
	state := muster.Succeeded
	if w.int(2) == 0 {
		state = muster.Failed
	}
	return w.commitTask(p, j, state, func(_ *muster.Rows, t *muster.Task) { t.Artifacts = artifacts }, func() { j.ended = true })
}

// reported checks a report of artifacts as the engine does, which leaves out those that are missing.
func (w *world) reported(p *process, j *model) (list []muster.Artifact, err error) {
	for i, data := range j.artifacts {
		if _, err := p.blobs.Touch(p.ctx, hashOf(data)); err != nil {
			return nil, errors.New("an artifact of job " + j.id.String() + " was removed before its report: " + err.Error())
		}
		list = append(list, muster.Artifact{Name: strconv.Itoa(i), Size: int64(len(data)), SHA256: hashOf(data)})
	}
	return list, w.step(p, 30*time.Second)
}

// commitTask commits a change of a job's only task.
func (w *world) commitTask(p *process, j *model, state muster.TaskState, change func(*muster.Rows, *muster.Task), done func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := muster.NewTime(time.Now())
	stored, err := p.store.Job(p.ctx, j.id)
	if err != nil {
		return err
	}
	before := *j
	if change == nil || state == muster.Running {
		done() // the row has the new checkpoint or attempt
	}
	g := stored.Groups[0]
	stored.Groups, stored.Spec = nil, nil
	task := taskRow(&stored, &g, j, state, now)
	stored.Usage.LogBytes = muster.LogOverhead
	rows := muster.Rows{Tasks: []muster.Task{task}}
	if change != nil {
		change(&rows, &rows.Tasks[0])
	}
	rows.Jobs, rows.Groups = []muster.Job{stored}, []muster.Group{g}
	if err := p.store.Commit(p.ctx, &store.Batch{Rows: rows}); err != nil {
		after := *j
		*j = before
		if t, readErr := p.store.Task(context.Background(), muster.TaskID{Job: j.id}); readErr == nil && t.State == state && t.Attempt == task.Attempt && t.Checkpoint == task.Checkpoint {
			*j = after // it is on disk
			if state.Final() {
				done()
			}
		}
		return err
	}
	if state.Final() {
		done()
	}
	return nil
}

// revive retries a failed job: its artifacts move to the past attempt.
func (w *world) revive(p *process, worker muster.WorkerID) error {
	id := w.anyEnded()
	if id == 0 {
		return nil
	}
	task, err := p.store.Task(p.ctx, muster.TaskID{Job: id})
	job, jobErr := p.store.Job(p.ctx, id)
	if err == nil && task.State != muster.Failed || muster.CodeOf(errors.Join(err, jobErr)) == muster.NotFound || jobErr == nil && job.ArtifactsRemovedAt != 0 {
		return nil
	}
	if err := errors.Join(err, jobErr, w.step(p, 10*time.Second)); err != nil {
		return err
	}
	w.mu.Lock()
	j := w.jobs[id]
	if j == nil || !j.ended { // it changed meanwhile
		w.mu.Unlock()
		return nil
	}
	now := muster.NewTime(time.Now())
	list, err := p.store.ExistingJobs(p.ctx, []muster.JobID{id})
	if err != nil || len(list) == 0 || list[0].ArtifactsRemovedAt != 0 || task.Attempt != j.attempts+1 {
		w.mu.Unlock()
		return err
	}
	j.ended, j.worker = false, worker
	w.mu.Unlock()
	past := muster.Attempt{ID: muster.AttemptID{Task: task.ID, N: task.Attempt}, Worker: task.Worker, Outcome: muster.AttemptFailed, Artifacts: task.Artifacts,
		AssignedAt: task.AssignedAt, StartedAt: task.StartedAt, FinishedAt: now}
	err = w.commitTask(p, j, muster.Running, func(rows *muster.Rows, _ *muster.Task) { rows.Attempts = append(rows.Attempts, past) }, func() {
		j.attempts++
		j.assigned, j.artifacts = now, nil
	})
	if err != nil {
		w.mu.Lock()
		j.ended = w.isEnded(j.id)
		w.mu.Unlock()
	}
	return err
}

// isEnded reports whether a job has ended, after a kill.
func (w *world) isEnded(id muster.JobID) bool {
	t, err := w.store.Task(context.Background(), muster.TaskID{Job: id})
	return err == nil && t.State.Final()
}

// anyEnded returns a random ended job, or 0.
func (w *world) anyEnded() muster.JobID {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ended []muster.JobID
	for id := range w.next + 1 {
		if j := w.jobs[id]; j != nil && j.ended {
			ended = append(ended, id)
		}
	}
	if len(ended) == 0 {
		return 0
	}
	return ended[w.rnd.IntN(len(ended))]
}

func (w *world) removeOne(p *process, s *sweeper.Sweeper) error {
	id := w.anyEnded()
	if id == 0 {
		return nil
	}
	err := s.Remove(p.ctx, id)
	if code := muster.CodeOf(err); err != nil && (code == muster.Conflict || code == muster.NotFound) {
		return nil
	}
	return err
}

func (w *world) keepOne(p *process, s *sweeper.Sweeper) error {
	id := w.anyEnded()
	if id == 0 {
		return nil
	}
	err := s.Keep(p.ctx, id, w.int(3) > 0)
	if err != nil && muster.CodeOf(err) == muster.NotFound {
		return nil
	}
	return err
}
