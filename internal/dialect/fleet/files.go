package fleet

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/transfer"
	"github.com/muster-dev/muster/internal/link"
)

const (
	maxArtifacts = 1000 // of a task
	uploadsDir   = "uploads"
)

// blobs returns a client for the files of the worker's tasks.
func (w *Worker) blobs() *transfer.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.credentials == nil { // it had no session yet
		return w.fleet.blobs.WithCredentials(link.StaticToken(""))
	}
	return w.fleet.blobs.WithCredentials(w.credentials)
}

// contextUntilDone returns a context that also ends when the task is done.
func (t *Task) contextUntilDone(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(t.Err()) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

func (t *Task) dir() string { return filepath.Join(t.worker.fleet.tasksDir(), t.id) }

// FetchInputs returns a directory with the task's files and inputs, which it fetches at the first call. The directory is removed when
// the task is done. A failure to fetch is a run.TaskError, with which the gateway can end the task.
func (t *Task) FetchInputs(ctx context.Context) (string, error) {
	t.dirMu.Lock()
	defer t.dirMu.Unlock()
	if err := t.Err(); err != nil {
		return "", err
	}
	if t.inputDir != "" {
		return t.inputDir, nil
	}
	if _, err := os.Stat(t.dir()); err == nil { // complete: from before a restart
		t.inputDir = t.dir()
		return t.inputDir, nil
	}
	ctx, done := t.contextUntilDone(ctx)
	defer done()
	tmp := t.dir() + ".part"
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o700)); err != nil {
		return "", run.Failf(muster.FetchFailed, "cannot create the task's directory: %w", err)
	}
	err := t.fetchFiles(ctx, tmp)
	if err == nil {
		err = os.Rename(tmp, t.dir())
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	t.inputDir = t.dir()
	return t.inputDir, nil
}

func (t *Task) fetchFiles(ctx context.Context, dir string) error {
	blobs := t.worker.blobs()
	if files := t.run.Spec.Files; files != "" {
		hash, ok := strings.CutPrefix(files, "sha256:")
		if !ok {
			return run.Failf(muster.TaskInvalid, "files is %q, which is not on the server: submit the job with muster submit", files)
		}
		if err := blobs.FetchTree(ctx, hash, dir); err != nil {
			return run.Failf(muster.FetchFailed, "cannot fetch the project's files: %w", err)
		}
	}
	if len(t.run.Inputs) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return run.Failf(muster.FetchFailed, "cannot open the task's directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	for _, in := range t.run.Inputs {
		name := filepath.FromSlash(in.Path)
		if !filepath.IsLocal(name) || in.Path == "." {
			return run.Failf(muster.TaskInvalid, "the input %q is outside the task's directory", in.Path)
		}
		if parent := path.Dir(in.Path); parent != "." {
			if err := root.MkdirAll(filepath.FromSlash(parent), 0o700); err != nil {
				return run.Failf(muster.TaskInvalid, "cannot create a directory for the input %s: %w", in.Path, err)
			}
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return run.Failf(muster.TaskInvalid, "the input %s cannot replace an existing file: %w", in.Path, err)
		}
		if err := blobs.Fetch(ctx, in.SHA256, in.Size, filepath.Join(dir, name)); err != nil {
			return run.Failf(muster.FetchFailed, "cannot fetch the input %s: %w", in.Path, err)
		}
	}
	return nil
}

func (t *Task) removeDir() error {
	t.dirMu.Lock()
	defer t.dirMu.Unlock()
	t.inputDir = ""
	return errors.Join(os.RemoveAll(t.dir()), os.RemoveAll(t.dir()+".part"))
}

// AddArtifact stores an artifact of at most maxBytes bytes on the server. The name is a relative path. An artifact replaces an earlier one
// of the same name. AddArtifact implies MarkStarted. It is Invalid for a bad name, TooLarge for too many bytes and a Conflict if the task
// is done.
func (t *Task) AddArtifact(ctx context.Context, name string, r io.Reader, maxBytes int64) error {
	if err := muster.CheckArtifactName(name); err != nil {
		return muster.Errorf(muster.Invalid, "invalid artifact name: %.80q %w", name, err)
	}
	if err := t.MarkStarted(); err != nil {
		return err
	}
	ctx, done := t.contextUntilDone(ctx)
	defer done()
	f, err := os.CreateTemp(filepath.Join(t.worker.fleet.cfg.Dir, uploadsDir), "*")
	if err != nil {
		return muster.Errorf(muster.Unavailable, "cannot store the artifact: %w", err)
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }()
	n, err := io.Copy(f, io.LimitReader(r, maxBytes+1))
	switch {
	case n > maxBytes:
		return muster.Errorf(muster.TooLarge, "the artifact %s exceeds %s", name, muster.Size(maxBytes))
	case err != nil:
		return muster.Errorf(muster.Invalid, "cannot read the artifact %s: %w", name, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return muster.Errorf(muster.Unavailable, "cannot read the artifact: %w", err)
	}
	sum, size, err := t.worker.blobs().UploadFile(ctx, f)
	if err != nil {
		if cause := t.Err(); cause != nil {
			return cause
		}
		return muster.Errorf(muster.Unavailable, "cannot store the artifact %s: %w", name, err)
	}
	return t.recordArtifact(muster.Artifact{Name: name, Size: size, SHA256: sum})
}

func (t *Task) recordArtifact(a muster.Artifact) error {
	var previous []muster.Artifact
	return t.update(func() error {
		if err := t.checkOpen(); err != nil {
			return err
		}
		previous = t.artifacts
		list := slices.DeleteFunc(slices.Clone(previous), func(b muster.Artifact) bool { return b.Name == a.Name })
		if len(list) >= maxArtifacts {
			return muster.Errorf(muster.TooLarge, "a task has at most %d artifacts", maxArtifacts)
		}
		names := []string{a.Name}
		for _, b := range list {
			names = append(names, b.Name)
		}
		if len(muster.ConflictingPaths(names)) > 0 {
			return muster.Errorf(muster.Invalid, "invalid artifact name: %.80q is a file and a directory of the task's artifacts", a.Name)
		}
		t.artifacts = append(list, a)
		return nil
	}, func() { t.artifacts = previous })
}
