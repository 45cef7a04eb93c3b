package trainforge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/lenient"
	"github.com/muster-dev/muster/internal/dialect/trainforge/archive"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
)

// jobClaim is a job that is being taken: it is on disk before the server is notified, so that a claimed job is run, whatever is
// killed.
type jobClaim struct {
	Job     job    `json:"job"`
	Claimed bool   `json:"claimed"` // the server said so
	Dist    *dist  `json:"dist,omitempty"`
	Refused string `json:"refused,omitempty"` // why it cannot be run: to be reported

	path string
	busy atomic.Bool // processClaim runs
}

func (b *Bridge) jobPath(id string) string {
	return "/api/jobs/" + url.PathEscape(id)
}

// loadClaims reads the claims of an earlier incarnation. It removes files of downloads.
func (b *Bridge) loadClaims() error {
	list, err := os.ReadDir(b.claimsDir())
	if err != nil {
		return muster.Errorf(muster.Invalid, "the bridge's folder cannot be read: %w", err)
	}
	for _, e := range list {
		path := filepath.Join(b.claimsDir(), e.Name())
		i := &jobClaim{path: path}
		raw, err := os.ReadFile(path)
		if !strings.HasSuffix(e.Name(), ".json") || err != nil || json.Unmarshal(raw, i) != nil || i.Job.id() == "" {
			_ = os.RemoveAll(path) // of a download, or half written before anything was said
			continue
		}
		b.claims[i.Job.id()] = i
	}
	return nil
}

func (b *Bridge) saveClaim(i *jobClaim) error {
	raw, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return atomicfile.Write(i.path, raw, 0o600)
}

func (b *Bridge) deleteClaim(i *jobClaim) {
	if err := os.Remove(i.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.log.Warn("a note cannot be removed", slog.String("job", i.Job.id()), slog.Any("error", err))
	}
	b.mu.Lock()
	delete(b.claims, i.Job.id())
	b.mu.Unlock()
}

func (b *Bridge) listClaims() []*jobClaim {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.claims))
}

// startClaim makes a job this worker's, and reports whether it is.
func (b *Bridge) startClaim(ctx context.Context, j *job) bool {
	i := &jobClaim{Job: *j, path: filepath.Join(b.claimsDir(), dialect.NewUUID()+".json")}
	if err := b.saveClaim(i); err != nil {
		b.log.Error("a job cannot be noted, and is not taken", slog.String("job", j.id()), slog.Any("error", err))
		return false
	}
	b.mu.Lock()
	b.claims[j.id()] = i
	b.mu.Unlock()
	return b.confirmClaim(ctx, i)
}

// confirmClaim claims the job of an intent. It returns false if another worker has the job, or if the owner is unknown.
func (b *Bridge) confirmClaim(ctx context.Context, i *jobClaim) bool {
	claim := b.claimCurrent
	if b.legacy.Load() {
		claim = b.claimLegacy
	}
	id := i.Job.id()
	won, err := claim(ctx, i)
	switch {
	case err != nil:
		b.log.Warn("it is not known whether a job was claimed", slog.String("job", id), slog.Any("error", err))
		return false
	case !won:
		b.skippedJobs.Put(id, true)
		b.deleteClaim(i)
		return false
	}
	i.Claimed = true
	if err := b.saveClaim(i); err != nil {
		b.log.Error("a claimed job cannot be noted", slog.String("job", id), slog.Any("error", err))
	}
	return true
}

// claimCurrent claims by worker C's way. The server does not check whether another worker was faster; where it shows the job, the first one has it.
func (b *Bridge) claimCurrent(ctx context.Context, i *jobClaim) (bool, error) {
	a, err := b.server.call(ctx, http.MethodPost, b.jobPath(i.Job.id())+"/claim", claimRequest{WorkerID: b.id})
	switch {
	case err != nil:
		return false, err
	case a.Status == http.StatusBadRequest, a.Status == http.StatusNotFound, a.Status == http.StatusConflict:
		return false, nil
	case !a.OK():
		return false, a.Err("a claim")
	}
	var reply claimAnswer
	if err := json.Unmarshal(a.Body, &reply); err != nil {
		return false, muster.Errorf(muster.Unavailable, "the TrainForge server's answer to a claim cannot be read: %w", err)
	}
	switch {
	case !reply.Success:
		return false, nil
	case reply.Dist != nil && reply.Distributed:
		i.Dist = reply.Dist
		return true, nil
	}
	if remote := b.fetchJob(ctx, i.Job.id()); remote != nil && len(remote.Allocated) > 0 && remote.Allocated[0] != b.id && !remote.Distributed {
		b.log.Info("another worker claimed the job first", slog.String("job", i.Job.id()), slog.String("worker", lenient.Text(remote.Allocated[0], 100)))
		return false, nil
	}
	return true, nil
}

// claimLegacy claims by worker B's way, which is to say that the job runs. It looks before, and after a moment, whether another worker did so.
func (b *Bridge) claimLegacy(ctx context.Context, i *jobClaim) (bool, error) {
	id := i.Job.id()
	remote := b.fetchJob(ctx, id)
	switch {
	case remote == nil:
		return false, muster.Errorf(muster.Unavailable, "the job cannot be read")
	case remote.Status == statusRunning && remote.WorkerNode == b.id: // the answer was lost
		return true, nil
	case remote.Status != statusPending:
		return false, nil
	}
	a, err := b.server.call(ctx, http.MethodPut, b.jobPath(id), update{Status: statusRunning, StartedAt: time.Now().Format(lenient.NaiveTime), WorkerNode: b.id})
	switch {
	case err != nil:
		return false, err
	case a.IsTemporary():
		return false, a.Err("a claim")
	case !a.OK():
		return false, nil
	}
	_ = backoff.Sleep(ctx, b.scaled(100*time.Millisecond+time.Duration(rand.IntN(200))*time.Millisecond)) //nolint:gosec // it only spreads requests
	remote = b.fetchJob(ctx, id)
	if remote != nil && (remote.WorkerNode != "" && remote.WorkerNode != b.id || remote.Status != statusRunning) {
		b.log.Info("another worker took the job", slog.String("job", id))
		return false, nil
	}
	return true, nil
}

// fetchJob returns a job as the server shows it, nil if it does not.
func (b *Bridge) fetchJob(ctx context.Context, id string) *job {
	if b.jobsHidden.Load() {
		return nil
	}
	a, err := b.server.call(ctx, http.MethodGet, b.jobPath(id), nil)
	switch {
	case err != nil:
		return nil
	case a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden:
		b.jobsHidden.Store(true)
		return nil
	case a.Status == http.StatusNotFound && a.ErrorText() == jobNotFoundText:
		return &job{ID: id, Status: statusCancelled} // deleted, or none of ours any more
	}
	var reply struct {
		job

		Inner *job `json:"job"` // some revisions wrap it
	}
	if !a.OK() || json.Unmarshal(a.Body, &reply) != nil {
		return nil
	}
	return cmp.Or(reply.Inner, &reply.job)
}

func (b *Bridge) checkCancelled(ctx context.Context) {
	for _, j := range b.core.Jobs() {
		remote := b.fetchJob(ctx, j.ID)
		if remote == nil || remote.Status != statusCancelled || ctx.Err() != nil {
			continue
		}
		if err := b.core.Cancel(ctx, j.ID); err != nil {
			b.log.Warn("a job cannot be cancelled", slog.String("job", j.ID), slog.Any("error", err))
		}
	}
}

func (b *Bridge) continueClaims(ctx context.Context, takers *errgroup.Group) {
	for _, i := range b.listClaims() {
		if i.busy.CompareAndSwap(false, true) && !takers.TryGo(func() error {
			defer i.busy.Store(false)
			b.processClaim(ctx, i)
			return nil
		}) {
			i.busy.Store(false)
		}
	}
}

func (b *Bridge) processClaim(ctx context.Context, i *jobClaim) {
	id := i.Job.id()
	switch {
	case b.core.Known(id):
		b.deleteClaim(i)
		return
	case i.Refused != "":
		b.reportUnrun(ctx, i, statusFailed, i.Refused)
		return
	case !i.Claimed && !b.confirmClaim(ctx, i):
		return
	}
	spec, err := b.spec(ctx, i)
	if err == nil {
		_, err = b.core.Accept(ctx, bridge.Job{ID: id, Spec: *spec})
	}
	switch code := muster.CodeOf(err); {
	case err == nil:
		b.deleteClaim(i)
	case ctx.Err() != nil:
	case code == muster.Invalid, code == muster.InvalidSpec, code == muster.NotFound, code == muster.TooLarge, code == muster.Forbidden:
		i.Refused = err.Error()
		if kerr := b.saveClaim(i); kerr != nil {
			b.log.Warn("a note cannot be written", slog.Any("error", kerr))
		}
		b.reportUnrun(ctx, i, statusFailed, i.Refused)
	default:
		b.log.Warn("a job cannot be taken now", slog.String("job", id), slog.Any("error", err))
	}
}

// reportUnrun reports a job that never became one of Muster's. It is repeated until the server has it.
func (b *Bridge) reportUnrun(ctx context.Context, i *jobClaim, status, message string) {
	err := b.report(ctx, i.Job.id(), status, message)
	if err != nil && muster.CodeOf(err) == muster.Unavailable {
		b.log.Warn("a job cannot be reported now", slog.String("job", i.Job.id()), slog.Any("error", err))
		return
	}
	b.skippedJobs.Put(i.Job.id(), true)
	b.deleteClaim(i)
}

func (b *Bridge) spec(ctx context.Context, i *jobClaim) (*muster.Spec, error) {
	if i.Dist != nil {
		if err := i.Dist.check(); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(b.claimsDir(), "project-*")
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot create a folder for a project: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // at the next start at the latest
	if err := b.fetchProject(ctx, i.Job.id(), dir); err != nil {
		return nil, err
	}
	conf := jobConfig(&i.Job)
	if err := conf.dropMissing(dir); err != nil {
		return nil, err
	}
	c, err := b.core.Capacity(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := projectSpec(dir, conf, len(c.Resources.GPUs) > 0, 0)
	if err != nil {
		return nil, err
	}
	t := &spec.Tasks[0]
	t.Env = map[string]string{"TRAINFORGE_JOB_ID": i.Job.id(), "TRAINFORGE_API_URL": escape(b.server.Base)}
	if d := i.Dist; d != nil {
		d.applyTo(t)
	}
	t.Files, err = b.cfg.Core.Client.UploadFolder(ctx, dir, nil)
	return spec, err
}

// fetchProject unpacks a job's project into dir. Where the server does not send it, it is looked for where worker B does.
func (b *Bridge) fetchProject(ctx context.Context, id, dir string) error {
	f, size, err := b.server.download(ctx, b.jobPath(id)+"/files", b.claimsDir())
	if muster.CodeOf(err) == muster.NotFound && b.legacy.Load() {
		f, size, err = b.localProject(id)
	} else if err == nil {
		defer func() { _ = os.Remove(f.Name()) }() // at the next start at the latest
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return archive.Unpack(ctx, f, size, dir, project.Limits)
}

func (b *Bridge) localProject(id string) (*os.File, int64, error) {
	path := filepath.Join(b.cfg.Projects, filepath.Base(id), "project.zip")
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, muster.Errorf(muster.Invalid, "the server does not send the project, and it is not in %s: name the folder with --projects", b.cfg.Projects)
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > project.MaxBytes) {
		err = muster.Errorf(muster.Invalid, "%s is not a project of at most %s", path, muster.Size(project.MaxBytes))
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}
