package mlochost

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/wake"
)

const (
	stagePrefix  = "mloc-"         // of the names of stages of jobs that the gateway submitted for tasks of clients; the id follows
	maxAttempts  = 3               // what hosts of MLOC call so: the first execution, and retries
	pollInterval = 5 * time.Second // between two looks at tasks whose news may have been missed
)

// submit takes what a client sent. The tasks are on disk when it returns.
func (g *Gateway) submit(data []byte) ([]task, error) {
	stages, err := mloc.Expand(data)
	if err != nil {
		return nil, err
	}
	now, submission := time.Now(), dialect.NewUUID()
	tasks, docs := make([]task, len(stages)), make([]mloc.Document, len(stages))
	for i, s := range stages {
		docs[i] = s.Doc
		tasks[i] = task{
			ID: dialect.NewUUID(), Submission: submission, Stage: s.Name, Name: mloc.Truncate(mloc.Text(s.Doc.Metadata["name"]), 200), Type: mloc.TaskType(s.Doc), Load: mloc.EstimatedLoad(s.Doc.Spec),
			State: mloc.StatePending, Submitted: now, Queued: now,
		}
		for _, id := range s.After {
			if _, known := g.tasks.get(id); !known {
				return nil, mloc.InvalidSpec("spec.dependsOn: there is no task %s", mloc.Quoted(id))
			}
			tasks[i].Needs = append(tasks[i].Needs, id)
		}
	}
	for i, s := range stages {
		for _, j := range s.Needs {
			tasks[i].Needs = append(tasks[i].Needs, tasks[j].ID)
		}
	}
	if err := g.tasks.add(string(data), tasks, docs); err != nil {
		return nil, err
	}
	g.metrics.count(&g.metrics.counters.Submitted, len(tasks))
	wake.Set(g.wake)
	return tasks, nil
}

// watchEvents follows what changes on the server, so that the driver looks at the right tasks.
func (g *Gateway) watchEvents(ctx context.Context) error {
	for {
		for e, err := range g.api.Events(ctx, client.EventQuery{Types: []muster.EventType{muster.EventTask, muster.EventJob}}) {
			if err != nil {
				break
			}
			if e.Type == muster.EventResync {
				g.markChanged(0)
			} else if g.tasks.hasJob(e.Job) {
				g.markChanged(e.Job)
			}
		}
		if backoff.Sleep(ctx, g.intervals.retry) != nil {
			return ctx.Err()
		}
		g.markChanged(0)
	}
}

// markChanged has the driver look at a job, or at all.
func (g *Gateway) markChanged(job muster.JobID) {
	g.mu.Lock()
	g.changedJobs[job] = true
	g.mu.Unlock()
	wake.Set(g.wake)
}

// driveLoop brings the tasks of clients forward until ctx ends: it submits those whose turn it is, and takes in how jobs ended.
func (g *Gateway) driveLoop(ctx context.Context) error {
	if err := g.releaseOrphans(); err != nil {
		return err
	}
	var lastPoll time.Time
	for {
		all := time.Since(lastPoll) >= pollInterval
		if all {
			lastPoll = time.Now()
			if err := g.pruneTasks(); err != nil {
				g.log.Warn("MLOC: old tasks cannot be forgotten", slog.Any("why", err))
			}
		}
		if err := g.advance(ctx, all); err != nil && ctx.Err() == nil {
			g.log.Warn("MLOC: tasks of clients cannot be submitted now", slog.Any("why", err))
			_ = backoff.Sleep(ctx, g.intervals.retry)
		}
		if err := wake.Wait(ctx, g.wake, pollInterval); err != nil {
			return err
		}
	}
}

// pruneTasks removes the oldest submissions where there are too many.
func (g *Gateway) pruneTasks() error {
	ids, err := g.tasks.prune(maxTasks)
	for _, id := range ids {
		err = errors.Join(err, g.results.forget(id))
	}
	return err
}

// advance does what there is to do for the tasks of clients.
func (g *Gateway) advance(ctx context.Context, all bool) error {
	g.mu.Lock()
	dirty := g.changedJobs
	g.changedJobs = map[muster.JobID]bool{}
	g.mu.Unlock()
	all = all || dirty[0]
	for _, t := range g.tasks.list(func(t *task) bool { return !t.final() && t.Job != 0 && (all || dirty[t.Job]) }) {
		if err := g.syncTask(ctx, t); err != nil {
			g.markChanged(t.Job)
			return err
		}
	}
	held, err := g.mergeReady()
	if err != nil {
		return err
	}
	// A failure may fail others, which come later in the order or not.
	for repeat := true; repeat; {
		repeat = false
		for _, t := range g.tasks.list(func(t *task) bool { return t.State == mloc.StatePending && t.Job == 0 && t.Parent == "" }) {
			ready, failed := g.checkNeeds(&t)
			var err error
			switch {
			case failed != "":
				repeat = true
				err = g.failTask(t.ID, "Dependency "+failed+" failed")
			case ready && !held[t.ID]:
				err = g.submitJob(ctx, t)
			}
			if err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// checkNeeds says whether all that a task needs is done, or else which of it failed.
func (g *Gateway) checkNeeds(t *task) (ready bool, failed string) {
	ready = true
	for _, id := range t.Needs {
		need, known := g.tasks.get(id)
		switch {
		case !known || need.State == mloc.StateFailed:
			return false, id
		case need.State != mloc.StateDone:
			ready = false
		}
	}
	return ready, ""
}

func (g *Gateway) failTask(id, reason string) error {
	_, err := g.tasks.update(id, func(t *task) error {
		t.State, t.Error, t.Finished = mloc.StateFailed, mloc.Truncate(reason, 4000), time.Now()
		return nil
	})
	return err
}

// resolveDocument returns the document with which a task is to be carried out, its references resolved; mloc.ErrPending if it has to wait.
func (g *Gateway) resolveDocument(t *task) (mloc.Document, error) {
	doc, err := g.tasks.doc(t.ID, false)
	if err != nil || t.Stage == "" {
		return doc, err
	}
	stages := map[string]mloc.Upstream{}
	for _, s := range g.tasks.list(func(s *task) bool { return s.Submission == t.Submission }) {
		up := mloc.Upstream{TaskID: s.ID, Done: s.State == mloc.StateDone}
		if up.Done {
			up.Wrapper, err = g.results.get(s.ID)
			if err != nil && muster.CodeOf(err) != muster.NotFound {
				return doc, err
			}
		}
		stages[s.Stage] = up
	}
	doc.Spec, err = mloc.Resolve(doc.Spec, stages)
	if err != nil {
		return doc, err
	}
	return doc, g.tasks.putResolved(t.ID, doc)
}

func (g *Gateway) submitJob(ctx context.Context, t task) error {
	doc, err := g.resolveDocument(&t)
	switch {
	case errors.Is(err, mloc.ErrPending):
		return nil
	case muster.CodeOf(err) == muster.InvalidSpec:
		return g.failTask(t.ID, err.Error())
	case err != nil:
		return err
	}
	spec := muster.Spec{
		Name: cmp.Or(t.Name, t.ID), Project: g.project(),
		Labels: map[string]string{"dialect": mloc.SystemName, "mloc.task": t.ID, "mloc.submission": t.Submission},
	}
	submit := func(stage muster.TaskSpec, suffix string) error {
		spec.Tasks = []muster.TaskSpec{stage}
		job, err := g.api.Submit(ctx, &spec, client.SubmitOptions{IdempotencyKey: "mloc-" + t.ID + suffix})
		if err != nil {
			return err
		}
		_, err = g.tasks.update(t.ID, func(t *task) error { t.Job = job.ID; return nil })
		g.markChanged(job.ID)
		return err
	}
	stage, err := g.nativeStage(doc, &t)
	if err == nil {
		err = submit(stage, "-0")
	}
	if !isRefusal(err) {
		return err
	}
	g.log.Debug("MLOC: a task needs a worker of MLOC", slog.String("task", t.ID), slog.Any("why", err))
	if stage, err = foreignStage(doc, &t); err == nil {
		err = submit(stage, "-0-foreign")
	}
	if isRefusal(err) || muster.CodeOf(err) == muster.Forbidden {
		return g.failTask(t.ID, err.Error())
	}
	return err
}

// isRefusal reports whether a job cannot be submitted as it is.
func isRefusal(err error) bool {
	code := muster.CodeOf(err)
	return code == muster.InvalidSpec || code == muster.Invalid || code == muster.TooLarge
}

// project is that of the gateway's jobs.
func (g *Gateway) project() string { return cmp.Or(g.Deps.Config.Project, muster.DefaultProject) }

// retries is how often Muster tries a task again, as hosts do it.
var retries = muster.Retries{Max: maxAttempts - 1, Backoff: muster.Duration(time.Second)}

// nativeStage is the stage with which any worker can carry a task out. It fails if only workers of MLOC can.
func (g *Gateway) nativeStage(doc mloc.Document, t *task) (muster.TaskSpec, error) {
	if len(t.Children) > 0 {
		return muster.TaskSpec{}, mloc.InvalidSpec("others were merged into it")
	}
	if !isHostDestination(mloc.Lookup(doc.Spec, "output", "destination")) {
		return muster.TaskSpec{}, mloc.InvalidSpec("spec.output.destination is not this host")
	}
	if g.requiresToken() {
		doc.Spec = g.withGrants(doc.Spec, t.ID)
	}
	stage, err := mloc.ToMuster(doc, g.url)
	stage.Name, stage.Retries = stagePrefix+t.ID, retries
	return stage, err
}

// foreignStage is the stage with which only workers of MLOC can carry a task out. They are given the document itself: the input is for people.
func foreignStage(doc mloc.Document, t *task) (muster.TaskSpec, error) {
	config := mloc.Object{"apiVersion": doc.APIVersion, "kind": doc.Kind, "metadata": doc.Metadata, "spec": doc.Spec}
	if len(mloc.EncodeString(config)) > muster.MaxSpecSize/2 {
		config["spec"] = mloc.Object{"taskType": t.Type}
	}
	input, err := mloc.Encode(mloc.Object{"system": mloc.SystemName, "type": t.Type, "config": mloc.Escape(config)})
	tags := []string{mloc.SystemTag}
	if len(t.Children) > 0 {
		tags = append(tags, tagMerges)
	}
	return muster.TaskSpec{
		Name: stagePrefix + t.ID, Kind: mloc.KindForeign, Input: input, Resources: mloc.ResourceRequest(doc.Spec), Where: muster.Where{Tags: tags}, Retries: retries,
	}, err
}

// syncTask applies the state of a task's job.
func (g *Gateway) syncTask(ctx context.Context, t task) error {
	mt, err := g.api.Task(ctx, muster.TaskID{Job: t.Job})
	if muster.CodeOf(err) == muster.NotFound {
		return g.failTask(t.ID, "its job "+t.Job.String()+" was removed")
	}
	if err != nil {
		return err
	}
	var worker workerName
	if mt.Worker != "" {
		if worker, err = g.lookupWorker(ctx, mt.Worker); err != nil {
			return err
		}
	}
	if mt.State == muster.Succeeded && mt.Attempt != t.Attempt && !worker.isMLOC {
		if err := g.storeResult(ctx, &t, &mt, worker.name); err != nil {
			return err
		}
	}
	attempts := mt.Attempt // those that did not succeed: also one whose worker was lost
	if mt.State == muster.Succeeded || mt.State == muster.Cancelled || mt.State.HoldsResources() {
		attempts--
	}
	updated, err := g.tasks.update(t.ID, func(t *task) error {
		if t.final() {
			return mloc.ErrPending
		}
		if attempts > t.Attempts {
			t.LastFailed, t.Attempts = cmp.Or(t.Worker, t.LastFailed), attempts
			g.metrics.count(&g.metrics.counters.Requeued, 1)
		}
		t.Worker = cmp.Or(worker.name, t.Worker)
		t.Dispatched, t.Started = toTime(mt.AssignedAt), toTime(mt.StartedAt)
		switch {
		case mt.State == muster.Succeeded:
			t.State, t.Error, t.Finished = mloc.StateDone, "", toTime(mt.FinishedAt)
		case mt.State.Final():
			t.State, t.Error, t.Finished = mloc.StateFailed, mloc.Truncate(cmp.Or(mt.Message, string(mt.Reason), mt.State.String()), 4000), toTime(mt.FinishedAt)
		case mt.State.HoldsResources():
			t.State = mloc.StateDispatched
		default:
			t.State, t.Worker = mloc.StatePending, ""
		}
		return nil
	})
	if errors.Is(err, mloc.ErrPending) {
		return nil
	}
	if err != nil || !updated.final() {
		return err
	}
	wake.Set(g.wake) // others may need it
	return g.finishChildren(&updated)
}

// storeResult stores the result of a task that one of Muster's own workers has done, as one of MLOC's would have delivered it.
func (g *Gateway) storeResult(ctx context.Context, t *task, mt *muster.Task, worker string) error {
	doc, err := g.tasks.doc(t.ID, true)
	if err != nil {
		return err
	}
	artifacts, err := g.api.Artifacts(ctx, mt.ID)
	if err != nil {
		return err
	}
	fileURL := func(name string) string { return g.fileURL(t.ID, name) }
	seconds := 0.0
	if mt.Usage != nil {
		seconds = mt.Usage.WallSeconds
	}
	d := mloc.Delivery{
		TaskID: t.ID, WorkerID: worker, Result: mloc.ToResult(doc, t.ID, mt.Result, artifacts, fileURL, seconds), Metadata: mloc.Object{"muster_task": mt.ID.String()},
	}
	if err := g.results.put(d, true, fileURL); err != nil {
		return err
	}
	return g.results.manifest(ctx, t.ID, doc.Spec)
}

// fileURL is where a file of a task can be fetched.
func (g *Gateway) fileURL(id, name string) string {
	return g.url + resultsPath + "/" + id + "/files/" + name
}

// lookupWorker returns the name of a worker, as clients of MLOC see it, and whether it is one of MLOC.
func (g *Gateway) lookupWorker(ctx context.Context, id muster.WorkerID) (workerName, error) {
	if known, ok := g.names.Get(string(id)); ok {
		return known, nil
	}
	w, err := g.api.Worker(ctx, string(id))
	switch {
	case muster.CodeOf(err) == muster.NotFound:
		return workerName{name: string(id)}, nil
	case err != nil:
		return workerName{}, err
	}
	found := workerName{name: w.Name}
	if foreign := w.Labels["mloc.worker"]; foreign != "" && slices.Contains(w.Tags, mloc.SystemTag) {
		found = workerName{name: foreign, isMLOC: true}
	}
	g.names.Put(string(id), found)
	return found, nil
}

// workerName is the name of a worker for clients.
type workerName struct {
	name   string
	isMLOC bool // it is one of MLOC
}

// toTime returns a time of Muster, zero if there is none.
func toTime(t muster.Time) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return t.Std()
}

// requiresToken reports whether requests need a token.
func (g *Gateway) requiresToken() bool { return g.Deps.Config.KeyRequired || g.settings.token != "" }

// grantToken is what allows to read the results of one task without a token.
func (g *Gateway) grantToken(id string) string {
	m := hmac.New(sha256.New, g.secret)
	m.Write([]byte(id))
	return hex.EncodeToString(m.Sum(nil))
}

// withGrants returns a spec whose addresses of this host's results can be read without a token, for workers that send none.
// It may lead to results of the task's own submission, and to those that it needs.
func (g *Gateway) withGrants(s mloc.Object, id string) mloc.Object {
	t, _ := g.tasks.get(id)
	prefix := g.url + resultsPath + "/"
	out, _ := mloc.MapTexts(s, func(text string) any {
		rest, ok := strings.CutPrefix(text, prefix)
		id, _, file := strings.Cut(rest, "/files/")
		if other, known := g.tasks.get(id); ok && file && known && !strings.ContainsAny(text, "?# ") &&
			(other.Submission == t.Submission || slices.Contains(t.Needs, id)) {
			return text + "?grant=" + g.grantToken(id)
		}
		return text
	}).(mloc.Object)
	return out
}
