package trainforge

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/trainforge/archive"
	"github.com/muster-dev/muster/internal/dialect/trainforge/project"
)

// intent is a job that is being taken: it is on disk before the server is told, so that a job that was claimed is run, whatever is
// killed.
type intent struct {
	Job     job    `json:"job"`
	Claimed bool   `json:"claimed"` // the server said so
	Dist    *dist  `json:"dist,omitempty"`
	Refused string `json:"refused,omitempty"` // why it cannot be run: to be reported

	path string
	busy bool // guarded by Bridge.mu
}

func (b *Bridge) path(id string) string {
	return "/api/jobs/" + url.PathEscape(id)
}

// readIntents reads those of an earlier life. Files of downloads are removed.
func (b *Bridge) readIntents() error {
	list, err := os.ReadDir(b.intentsDir())
	if err != nil {
		return muster.Errorf(muster.Invalid, "the bridge's folder cannot be read: %w", err)
	}
	for _, e := range list {
		path := filepath.Join(b.intentsDir(), e.Name())
		i := &intent{path: path}
		raw, err := os.ReadFile(path)
		if !strings.HasSuffix(e.Name(), ".json") || err != nil || json.Unmarshal(raw, i) != nil || i.Job.id() == "" {
			_ = os.RemoveAll(path) // of a download, or half written before anything was said
			continue
		}
		b.intents[i.Job.id()] = i
	}
	return nil
}

func (b *Bridge) keep(i *intent) error {
	raw, err := json.Marshal(i)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(i.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(i.path+".new", i.path)
	}
	return err
}

func (b *Bridge) forgetIntent(i *intent) {
	if err := os.Remove(i.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.log.Warn("a note cannot be removed", slog.String("job", i.Job.id()), slog.Any("error", err))
	}
	b.mu.Lock()
	delete(b.intents, i.Job.id())
	b.mu.Unlock()
}

// claimed lists the jobs that are being taken.
func (b *Bridge) claimed() []*intent {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*intent
	for _, i := range b.intents {
		list = append(list, i)
	}
	return list
}

// claim makes a job this worker's, and reports whether it is.
func (b *Bridge) claim(ctx context.Context, j *job) bool {
	i := &intent{Job: *j, path: filepath.Join(b.intentsDir(), newID()+".json")}
	if err := b.keep(i); err != nil {
		b.log.Error("a job cannot be noted, and is not taken", slog.String("job", j.id()), slog.Any("error", err))
		return false
	}
	b.mu.Lock()
	b.intents[j.id()] = i
	b.mu.Unlock()
	return b.confirm(ctx, i)
}

// confirm claims the job of an intent. It returns false if it is not ours or that is not known yet.
func (b *Bridge) confirm(ctx context.Context, i *intent) bool {
	var mine bool
	var err error
	if b.interfaceNow() == legacy {
		mine, err = b.claimLegacy(ctx, i)
	} else {
		mine, err = b.claimCurrent(ctx, i)
	}
	id := i.Job.id()
	switch {
	case err != nil:
		b.log.Warn("it is not known whether a job was claimed", slog.String("job", id), slog.Any("error", err))
		return false
	case !mine:
		b.told(id, true)
		b.forgetIntent(i)
		return false
	}
	i.Claimed = true
	if err := b.keep(i); err != nil {
		b.log.Error("a claimed job cannot be noted", slog.String("job", id), slog.Any("error", err))
	}
	return true
}

// claimCurrent claims by worker C's way. The server does not check whether another worker was faster; where it shows the job, the first one has it.
func (b *Bridge) claimCurrent(ctx context.Context, i *intent) (bool, error) {
	a, err := b.remote.call(ctx, http.MethodPost, b.path(i.Job.id())+"/claim", claim{WorkerID: b.id})
	if err != nil {
		return false, err
	}
	switch {
	case a.status == http.StatusBadRequest, a.status == http.StatusNotFound, a.status == http.StatusConflict:
		return false, nil
	case !a.ok():
		return false, a.failure("a claim")
	}
	var said claimed
	if err := json.Unmarshal(a.body, &said); err != nil {
		return false, muster.Errorf(muster.Unavailable, "the TrainForge server's answer to a claim cannot be read: %w", err)
	}
	switch {
	case !said.Success:
		return false, nil
	case said.Dist != nil && said.Distributed:
		i.Dist = said.Dist
		return true, nil
	}
	if now := b.read(ctx, i.Job.id()); now != nil && len(now.Allocated) > 0 && now.Allocated[0] != b.id && !now.Distributed {
		b.log.Info("another worker claimed the job first", slog.String("job", i.Job.id()), slog.String("worker", cut(now.Allocated[0], 100)))
		return false, nil
	}
	return true, nil
}

// claimLegacy claims by worker B's way, which is to say that the job runs. It looks before, and after a moment, whether another worker did so.
func (b *Bridge) claimLegacy(ctx context.Context, i *intent) (bool, error) {
	id := i.Job.id()
	now := b.read(ctx, id)
	switch {
	case now == nil:
		return false, muster.Errorf(muster.Unavailable, "the job cannot be read")
	case now.Status == statusRunning && now.WorkerNode == b.id: // the answer was lost
		return true, nil
	case now.Status != statusPending:
		return false, nil
	}
	a, err := b.remote.call(ctx, http.MethodPut, b.path(id), update{Status: statusRunning, StartedAt: time.Now().Format(naive), WorkerNode: b.id})
	if err != nil {
		return false, err
	}
	if !a.ok() {
		if a.status >= 500 || a.status == http.StatusTooManyRequests {
			return false, a.failure("a claim")
		}
		return false, nil
	}
	pauseFor(ctx, b.every(100*time.Millisecond+time.Duration(rand.IntN(200))*time.Millisecond)) //nolint:gosec // it only spreads requests
	now = b.read(ctx, id)
	if now != nil && (now.WorkerNode != "" && now.WorkerNode != b.id || now.Status != statusRunning) {
		b.log.Info("another worker took the job", slog.String("job", id))
		return false, nil
	}
	return true, nil
}

// read returns a job as the server shows it, nil if it does not.
func (b *Bridge) read(ctx context.Context, id string) *job {
	b.mu.Lock()
	blind := b.blind
	b.mu.Unlock()
	if blind {
		return nil
	}
	a, err := b.remote.call(ctx, http.MethodGet, b.path(id), nil)
	if err != nil {
		return nil
	}
	if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
		b.mu.Lock()
		b.blind = true
		b.mu.Unlock()
		return nil
	}
	if a.status == http.StatusNotFound && a.text() == "Job not found" {
		return &job{ID: id, Status: statusCancelled} // deleted, or none of ours any more
	}
	var now struct {
		job

		Inner *job `json:"job"` // some revisions wrap it
	}
	if !a.ok() || json.Unmarshal(a.body, &now) != nil {
		return nil
	}
	if now.Inner != nil {
		return now.Inner
	}
	return &now.job
}

// ask cancels jobs that were cancelled or deleted on the server.
func (b *Bridge) ask(ctx context.Context) {
	for _, j := range b.core.Jobs() {
		now := b.read(ctx, j.ID)
		if now == nil || now.Status != statusCancelled || ctx.Err() != nil {
			continue
		}
		if err := b.core.Cancel(ctx, j.ID); err != nil {
			b.log.Warn("a job cannot be cancelled", slog.String("job", j.ID), slog.Any("error", err))
		}
	}
}

// advance goes on with a job that is being taken.
func (b *Bridge) advance(ctx context.Context, works *errgroup.Group, i *intent) {
	b.mu.Lock()
	busy := i.busy
	i.busy = true
	b.mu.Unlock()
	if busy {
		return
	}
	free := func() {
		b.mu.Lock()
		i.busy = false
		b.mu.Unlock()
	}
	if !works.TryGo(func() error {
		defer free()
		b.take(ctx, i)
		return nil
	}) {
		free()
	}
}

func (b *Bridge) take(ctx context.Context, i *intent) {
	id := i.Job.id()
	switch {
	case b.core.Known(id):
		b.forgetIntent(i)
		return
	case i.Refused != "":
		b.drop(ctx, i, statusFailed, i.Refused)
		return
	case !i.Claimed && !b.confirm(ctx, i):
		return
	}
	spec, err := b.spec(ctx, i)
	if err == nil {
		meta := jobMeta{API: b.interfaceNow(), Name: cut(i.Job.Project, 200)}
		raw, merr := json.Marshal(meta)
		if merr == nil {
			_, err = b.core.Accept(ctx, bridge.Job{ID: id, Spec: *spec, Meta: raw})
		}
	}
	switch code := muster.CodeOf(err); {
	case err == nil:
		b.forgetIntent(i)
	case ctx.Err() != nil:
	case code == muster.Invalid, code == muster.InvalidSpec, code == muster.NotFound, code == muster.TooLarge, code == muster.Forbidden:
		i.Refused = err.Error()
		if kerr := b.keep(i); kerr != nil {
			b.log.Warn("a note cannot be written", slog.Any("error", kerr))
		}
		b.drop(ctx, i, statusFailed, i.Refused)
	default:
		b.log.Warn("a job cannot be taken now", slog.String("job", id), slog.Any("error", err))
	}
}

// drop reports a job that never became one of Muster's. It is repeated until the server has it.
func (b *Bridge) drop(ctx context.Context, i *intent, status, message string) {
	err := b.report(ctx, i.Job.id(), status, message)
	if err != nil && muster.CodeOf(err) == muster.Unavailable {
		b.log.Warn("a job cannot be reported now", slog.String("job", i.Job.id()), slog.Any("error", err))
		return
	}
	b.told(i.Job.id(), true)
	b.forgetIntent(i)
}

// jobMeta is what is kept of a job with it.
type jobMeta struct {
	API  string `json:"api"`
	Name string `json:"name"`
}

// spec fetches a job's project and makes a job of Muster of it.
func (b *Bridge) spec(ctx context.Context, i *intent) (*muster.Spec, error) {
	if i.Dist != nil {
		if err := i.Dist.check(); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(b.intentsDir(), "project-*")
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "no folder for a project can be made: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // at the next start at the latest
	if err := b.fetch(ctx, i.Job.id(), dir); err != nil {
		return nil, err
	}
	conf := configOf(&i.Job)
	if err := conf.lenient(dir); err != nil {
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
	t.Env = map[string]string{"TRAINFORGE_JOB_ID": i.Job.id(), "TRAINFORGE_API_URL": escape(b.remote.base)}
	if d := i.Dist; d != nil {
		d.into(t)
	}
	t.Files, err = b.cfg.Core.Client.UploadFolder(ctx, dir, nil)
	return spec, err
}

// fetch unpacks a job's project into dir. Where the server does not send it, it is looked for where worker B does.
func (b *Bridge) fetch(ctx context.Context, id, dir string) error {
	f, size, err := b.remote.download(ctx, b.path(id)+"/files", b.intentsDir())
	if muster.CodeOf(err) == muster.NotFound && b.interfaceNow() == legacy {
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
	if err == nil && (!info.Mode().IsRegular() || info.Size() > project.Most) {
		err = muster.Errorf(muster.Invalid, "%s is no project of at most %s", path, muster.Size(project.Most))
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}
