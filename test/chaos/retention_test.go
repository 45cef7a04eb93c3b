//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/tasklog"
)

// limitedProject is a project whose policy, and the prunes of a run, keep few jobs.
const (
	limitedProject = "limited"
	limitedJobs    = 6 // that its policy keeps
	prunedJobs     = 3 // that a prune keeps at least
)

// retained is what happens to a job beside its policy.
type retained string

const (
	byPolicy    retained = ""        // nothing
	limited     retained = "limited" // it is in the limited project
	keptOnly    retained = "keep"    // and it is kept
	unkept      retained = "unkeep"  // for a while
	removed     retained = "rm"      // it is removed after its end
	removedLive retained = "rm_live" // it is removed whether it has ended or not
	removedKept retained = "rm_kept" // it is kept, and then to be removed, which must be refused
)

// prunePlan is a prune during the faults.
type prunePlan struct {
	At   time.Duration
	Jobs int // that it keeps of the limited project; 0: what the policies keep, of all projects
}

// planRetention decides which jobs are kept and removed.
func planRetention(rng *rand.Rand, jobs []jobPlan) {
	choices := []retained{byPolicy, byPolicy, byPolicy, byPolicy, limited, limited, limited, keptOnly, unkept, removed, removed, removedLive, removedKept}
	for i := range jobs {
		jobs[i].Retained = choices[rng.IntN(len(choices))]
		jobs[i].RetainAfter = time.Duration(rng.IntN(3000)) * ms
	}
}

// planPrunes decides when there are prunes.
func planPrunes(rng *rand.Rand, duration time.Duration) []prunePlan {
	var list []prunePlan
	for at := time.Duration(0); ; {
		at += time.Duration(1000+rng.IntN(5000)) * ms
		p := prunePlan{At: at}
		if rng.IntN(3) > 0 {
			p.Jobs = prunedJobs + rng.IntN(4)
		}
		if at >= duration {
			return list
		}
		list = append(list, p)
	}
}

// project returns the project of a job.
func (it *jobPlan) project() string {
	switch it.Retained {
	case limited, keptOnly, unkept:
		return limitedProject
	default:
		return ""
	}
}

// retain keeps or removes the job as planned. Requests are repeated until the server has answered them.
func (u *jobClient) retain(ctx context.Context) {
	u.r.mu.Lock()
	acks := u.r.h.Jobs[u.n].Acks
	u.r.mu.Unlock()
	if len(acks) == 0 {
		return
	}
	id := acks[0]
	switch u.item.Retained {
	case byPolicy, limited:
	case keptOnly:
		u.keep(ctx, id)
	case unkept:
		if u.keep(ctx, id) {
			u.pause(ctx)
			u.record(func(s *Submission) { s.Unkept = true })
			_ = await(ctx, 2*time.Minute, func() error { _, err := u.client().KeepJob(ctx, id, false); return ifUnanswered(err) })
		}
	case removed:
		if !u.awaitEnd(ctx, id) {
			return
		}
		j, err := u.c.readEnded(ctx, id)
		if err != nil {
			u.c.recordExit("job %s has ended, and cannot be read: %v", id, err)
			return
		}
		u.r.mu.Lock()
		u.r.h.Removed = append(u.r.h.Removed, j)
		u.r.mu.Unlock()
		u.remove(ctx, id)
	case removedLive:
		u.pause(ctx)
		u.remove(ctx, id)
	case removedKept:
		if u.keep(ctx, id) && u.awaitEnd(ctx, id) {
			u.remove(ctx, id)
		}
	}
}

func (u *jobClient) client() *client.Client { return u.c.client(5*time.Second, u.item.Proxy) }

func (u *jobClient) record(change func(*Submission)) {
	u.r.mu.Lock()
	defer u.r.mu.Unlock()
	change(&u.r.h.Jobs[u.n])
}

func (u *jobClient) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(u.item.RetainAfter):
	}
}

// ifUnanswered returns err if the server has not decided about a request, which is to be repeated.
func ifUnanswered(err error) error {
	switch muster.CodeOf(err) {
	case muster.NotFound, muster.Conflict:
		return nil
	default:
		return err
	}
}

// keep keeps the job, and reports whether that was acknowledged.
func (u *jobClient) keep(ctx context.Context, id muster.JobID) (kept bool) {
	_ = await(ctx, 2*time.Minute, func() error {
		_, err := u.client().KeepJob(ctx, id, true)
		if err == nil {
			kept = true
			u.record(func(s *Submission) { s.Kept = time.Now().UnixNano() })
		}
		return ifUnanswered(err)
	})
	return kept
}

// remove removes the job, unless the server refuses it. A job that is not there was removed by an earlier request.
func (u *jobClient) remove(ctx context.Context, id muster.JobID) {
	u.record(func(s *Submission) { s.RemovalSent = true })
	_ = await(ctx, 2*time.Minute, func() error {
		err := u.client().RemoveJob(ctx, id)
		if err == nil || muster.CodeOf(err) == muster.NotFound {
			u.record(func(s *Submission) { s.Removed = time.Now().UnixNano() })
		}
		return ifUnanswered(err)
	})
}

func (u *jobClient) awaitEnd(ctx context.Context, id muster.JobID) bool {
	return await(ctx, 5*time.Minute, func() error {
		j, err := u.client().Job(ctx, id)
		if err == nil && !j.State.Final() {
			err = fmt.Errorf("job %s is %s", id, j.State)
		}
		return err
	}) == nil
}

// readEnded reads a job that has ended, with logs and artifacts.
func (c *cluster) readEnded(ctx context.Context, id muster.JobID) (FinalJob, error) {
	list := make([]FinalJob, 1)
	err := await(ctx, 2*time.Minute, func() error {
		job, err := c.client(time.Minute, false).Job(ctx, id)
		if err != nil {
			return err
		}
		job.Spec = nil
		list[0] = FinalJob{Job: job}
		if err := c.readTasks(ctx, list); err != nil {
			return err
		}
		if err := c.readContents(ctx, list); err != nil {
			return err
		}
		for _, t := range list[0].Tasks {
			for name, sum := range t.Files {
				if !muster.IsSHA256(sum) {
					return fmt.Errorf("artifact %s of task %s: %s", name, t.Task.ID, sum)
				}
			}
		}
		return nil
	})
	return list[0], err
}

// limitProject sets the policy of the limited project.
func (c *cluster) limitProject(ctx context.Context) error {
	_, err := c.client(time.Minute, false).SetRetention(ctx, limitedProject, client.RetentionPolicy{Jobs: strconv.Itoa(limitedJobs)})
	return err
}

// runPrunes prunes as planned, while faults happen. What fails is tried by the next one.
func (c *cluster) runPrunes(ctx context.Context, start time.Time, list []prunePlan) {
	cl := c.client(s, false)
	for _, p := range list {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(start.Add(p.At))):
		}
		var req client.PruneRequest
		if p.Jobs > 0 {
			req = client.PruneRequest{Project: limitedProject, Keep: client.RetentionPolicy{Jobs: strconv.Itoa(p.Jobs)}}
		}
		_, _ = cl.Prune(ctx, req) // the server may be down
	}
}

// ageBlobs makes all blobs of the server, which is not running, as old as if it had been off for two days: nothing but a reference keeps them.
func (c *cluster) ageBlobs() {
	old := time.Now().Add(-48 * time.Hour)
	err := filepath.WalkDir(filepath.Join(c.server.data, "blobs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !muster.IsSHA256(d.Name()) {
			return err
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // nothing was uploaded
		c.recordExit("the blobs cannot be made old: %v", err)
	}
}

// pruneAll prunes until nothing is left to delete. The server is killed while it does.
func (c *cluster) pruneAll(ctx context.Context, rng *rand.Rand) error {
	cl := c.client(time.Minute, false)
	for range 4 {
		c.server.kill()
		c.ageBlobs()
		c.server.start()
		if _, err := cl.Prune(ctx, client.PruneRequest{}); err != nil {
			return fmt.Errorf("prune: %w", err)
		}
		time.Sleep(time.Duration(rng.IntN(300)) * ms) // the moment of the kill is random
	}
	return await(ctx, 2*time.Minute, func() error {
		p, err := cl.Prune(ctx, client.PruneRequest{})
		if err != nil {
			return err
		}
		if n := p.Jobs.Number + p.Logs.Number + p.Artifacts.Number + p.Uploads.Number; n > 0 {
			return fmt.Errorf("a prune still finds %d jobs, logs, artifacts and uploads", n)
		}
		r, err := cl.Retention(ctx)
		if err == nil && r.WaitingJobs > 0 {
			err = fmt.Errorf("rows or logs of %d removed jobs are left", r.WaitingJobs)
		}
		return err
	})
}

// readRemoved describes what the API still has of removed jobs.
func (c *cluster) readRemoved(ctx context.Context, h *History) (found []string) {
	cl := c.client(time.Minute, false)
	for _, id := range goneJobs(h) {
		task := muster.TaskID{Job: id}
		_, jobErr := cl.Job(ctx, id)
		_, attemptsErr := cl.Attempts(ctx, task)
		_, artifactsErr := cl.Artifacts(ctx, task)
		var logsErr error
		for _, err := range cl.Logs(ctx, task, client.LogOptions{}) {
			logsErr = err
		}
		for what, err := range map[string]error{"the job": jobErr, "attempts": attemptsErr, "artifacts": artifactsErr, "logs": logsErr} {
			if muster.CodeOf(err) != muster.NotFound {
				found = append(found, fmt.Sprintf("job %s: %s can be read: %v", id, what, err))
			}
		}
	}
	return found
}

// goneJobs returns the acknowledged jobs that are not in the final list.
func goneJobs(h *History) (ids []muster.JobID) {
	for i := range h.Jobs {
		acks := h.Jobs[i].Acks
		if len(acks) > 0 && !slices.ContainsFunc(h.Final, func(j FinalJob) bool { return j.Job.ID == acks[0] }) {
			ids = append(ids, acks[0])
		}
	}
	return ids
}

// readStored compares the database, logs and blobs of the server, which has ended, with each other: it returns blobs that are missing, and
// what nothing needs.
func (c *cluster) readStored(ctx context.Context, h *History) (missing, leftover []string, err error) {
	db, err := sqlite.Open(ctx, filepath.Join(c.server.data, "muster.db"), sqlite.Options{})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	logs, err := tasklog.OpenDir(filepath.Join(c.server.data, "logs"))
	if err != nil {
		return nil, nil, err
	}
	blobs, err := blob.OpenDir(filepath.Join(c.server.data, "blobs"))
	if err != nil {
		return nil, nil, err
	}
	x := storedReader{ctx: ctx, blobs: blobs, needed: map[string]bool{}, jobs: map[muster.JobID]bool{}}
	if err := errors.Join(eachRef(ctx, db.SpecBlobs, x.visit), eachRef(ctx, db.TaskBlobs, x.visit), eachRef(ctx, db.AttemptBlobs, x.visit), eachRef(ctx, db.LateBlobs, x.visit)); err != nil {
		return nil, nil, err
	}
	dirs, err := logs.Jobs(0, 1_000_000)
	if err != nil {
		return nil, nil, err
	}
	gone := goneJobs(h)
	for _, id := range gone {
		if x.jobs[id] {
			x.leftover = append(x.leftover, fmt.Sprintf("job %s: the database has rows of it", id))
		}
		if slices.Contains(dirs, id) {
			x.leftover = append(x.leftover, fmt.Sprintf("job %s: its logs are there", id))
		}
	}
	existing, err := db.ExistingJobs(ctx, gone)
	for i := range existing {
		x.leftover = append(x.leftover, fmt.Sprintf("job %s: it is in the database", existing[i].ID))
	}
	if err != nil {
		return nil, nil, err
	}
	files, err := blobs.Files(ctx, "", 1_000_000)
	for _, f := range files {
		if !x.needed[f.SHA256] {
			x.leftover = append(x.leftover, fmt.Sprintf("blob %s: nothing refers to it", f.SHA256))
		}
	}
	return x.missing, x.leftover, err
}

// storedReader collects which blobs are needed, and by which jobs.
type storedReader struct {
	ctx               context.Context // of the visit
	blobs             *blob.Dir
	needed            map[string]bool
	jobs              map[muster.JobID]bool
	missing, leftover []string
}

func (x *storedReader) visit(ref *store.BlobRef) error {
	x.jobs[ref.Job] = true
	for _, b := range ref.Blobs {
		x.need(ref, b.SHA256)
	}
	for _, sum := range ref.Trees {
		if !x.need(ref, sum) {
			continue
		}
		r, err := x.blobs.Open(x.ctx, sum)
		if err != nil {
			return err
		}
		b, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
		var tree muster.Tree
		if err := json.Unmarshal(b, &tree); err != nil {
			return err
		}
		for i := range tree.Files {
			x.need(ref, tree.Files[i].SHA256)
		}
	}
	return nil
}

// need notes that a job refers to a blob, and reports whether that is there.
func (x *storedReader) need(ref *store.BlobRef, sum string) bool {
	x.needed[sum] = true
	if _, err := x.blobs.Stat(x.ctx, sum); err != nil {
		x.missing = append(x.missing, fmt.Sprintf("task %s, attempt %d: %v", ref.Task, ref.Attempt, err))
		return false
	}
	return true
}

func eachRef[K any](ctx context.Context, list func(context.Context, K, int) ([]store.BlobRef, K, bool, error), visit func(*store.BlobRef) error) error {
	var after K
	for {
		page, next, done, err := list(ctx, after, 1000)
		if err != nil {
			return err
		}
		for i := range page {
			if err := visit(&page[i]); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
		after = next
	}
}

// mayBeGone reports whether a job may have been removed: a client has asked for it, or it is in the limited project and is not kept.
func (s *Submission) mayBeGone() bool {
	return s.RemovalSent || s.Project == limitedProject && !s.staysKept()
}

// staysKept reports whether the job is kept from some time on.
func (s *Submission) staysKept() bool { return s.Kept > 0 && !s.Unkept }

// removals checks what was removed, beside what is checked of each job.
func (c *checker) removals() {
	var oldest muster.Time // end of those that the policy of the limited project has kept
	there, made := 0, 0
	for i := range c.h.Jobs {
		s := &c.h.Jobs[i]
		jobs := c.jobs[s.Name]
		if s.Project == limitedProject {
			made += b2i(len(s.Acks) > 0)
			there += b2i(len(jobs) > 0)
			if len(jobs) > 0 && s.Kept == 0 && (oldest == 0 || jobs[0].Job.FinishedAt < oldest) {
				oldest = jobs[0].Job.FinishedAt
			}
		}
		switch {
		case s.Removed > 0 && s.staysKept():
			c.fail(keptStays, s.Name, "it was kept at %s, and removed at %s", clock(s.Kept), clock(s.Removed))
		case s.staysKept() && len(jobs) == 0:
			c.fail(keptStays, s.Name, "it was kept at %s, and is not there", clock(s.Kept))
		case s.Removed > 0 && len(jobs) > 0:
			c.fail(goneWhole, s.Name, "it was removed at %s, and job %s is there", clock(s.Removed), jobs[0].Job.ID)
		}
		if s.Removed > 0 {
			c.removedEarly(s)
		}
	}
	if least := min(made, prunedJobs); there < least {
		c.fail(keptStays, limitedProject, "%d of %d jobs are there, and no policy or prune keeps less than %d", there, made, least)
	}
	for i := range c.h.Jobs {
		if s := &c.h.Jobs[i]; s.Project == limitedProject && len(s.Acks) > 0 && len(c.jobs[s.Name]) == 0 && oldest > 0 {
			c.removedYoung(s, oldest)
		}
	}
	for _, desc := range c.h.Missing {
		c.fail(blobsStay, "blobs", "%s", desc)
	}
	for _, desc := range c.h.Leftover {
		c.fail(goneWhole, "server", "%s", desc)
	}
}

// removedEarly checks that a removed job had ended.
func (c *checker) removedEarly(s *Submission) {
	for i := range s.Stages {
		w := &s.Stages[i]
		for index := range w.Size {
			effects, err := parseEffects(c.h.Effects[fmt.Sprintf("%s.%s.%d", s.Name, w.Stage, index)])
			if err != nil {
				continue // reported elsewhere, if the job is there
			}
			ended, starts := int64(0), 0
			for _, e := range effects {
				switch e.Kind {
				case "end":
					ended = e.At
				case "begin":
					starts++
				}
			}
			if ended > s.Removed {
				c.fail(liveStays, s.Name, "it was removed at %s, and %s.%d ended at %s", clock(s.Removed), w.Stage, index, clock(ended))
			}
			if ended == 0 && w.State == muster.Succeeded && s.Cancel == 0 && starts < crashLimit && firstAt(effects, "nospace") == 0 {
				c.fail(liveStays, s.Name, "it was removed at %s, and %s.%d had not ended", clock(s.Removed), w.Stage, index)
			}
		}
	}
}

// removedYoung checks that a job that a limit removed had ended before all that the limit kept.
func (c *checker) removedYoung(s *Submission, oldest muster.Time) {
	for i := range s.Stages {
		for index := range s.Stages[i].Size {
			effects, _ := parseEffects(c.h.Effects[fmt.Sprintf("%s.%s.%d", s.Name, s.Stages[i].Stage, index)])
			for _, e := range effects {
				if e.Kind == "end" && muster.NewTime(time.Unix(0, e.At)) > oldest {
					c.fail(keptStays, s.Name, "it ended at %s and was removed, and a job that ended at %s was not", clock(e.At), oldest)
					return
				}
			}
		}
	}
}
