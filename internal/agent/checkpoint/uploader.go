package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Config configures an Uploader.
type Config struct {
	Blobs   Blobs
	OnSaved func(a muster.AttemptID, tree string) // reports the tree to the server, which has all of its blobs
	Log     *slog.Logger
}

// Blobs transfers blobs to and from the server. Its errors are run.TaskErrors.
type Blobs interface {
	UploadFile(ctx context.Context, f *os.File) (sha256 string, size int64, err error)
	FetchTree(ctx context.Context, sha256, dir string) error
}

// Uploader keeps the checkpoint folders of tasks on the server: see process.CheckpointStore.
type Uploader struct{ cfg Config }

// New returns an Uploader.
func New(cfg Config) *Uploader { return &Uploader{cfg} }

// Suffixes of the new and the old folder during a replacement.
const (
	incomingSuffix = ".coming"
	outgoingSuffix = ".going"
)

// Load implements process.CheckpointStore.
func (s *Uploader) Load(ctx context.Context, t *run.Task, dir string) error {
	if t.Checkpoint == "" || readManifest(dir).hasTree(t.Checkpoint) {
		return nil
	}
	incoming, outgoing := dir+incomingSuffix, dir+outgoingSuffix
	if err := errors.Join(run.RemoveAll(incoming), run.RemoveAll(outgoing)); err != nil {
		return folderError(err)
	}
	if err := os.Mkdir(incoming, 0o700); err != nil {
		return folderError(err)
	}
	if err := s.cfg.Blobs.FetchTree(ctx, t.Checkpoint, incoming); err != nil {
		if rerr := run.RemoveAll(incoming); rerr != nil {
			s.cfg.Log.Warn("removing an incomplete checkpoint failed", slog.String("folder", incoming), slog.Any("error", rerr))
		}
		return run.Failf(muster.FetchFailed, "fetch the checkpoint: %w", err)
	}
	if err := removeManifest(dir); err != nil {
		return folderError(err)
	}
	if err := os.Rename(dir, outgoing); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return folderError(err)
	}
	if err := os.Rename(incoming, dir); err != nil {
		return folderError(err)
	}
	n := &manifest{}
	n.addTree(t.Checkpoint)
	if err := n.write(dir); err != nil {
		return folderError(err)
	}
	if err := run.RemoveAll(outgoing); err != nil {
		s.cfg.Log.Warn("removing an old checkpoint failed", slog.String("folder", outgoing), slog.Any("error", err))
	}
	return nil
}

// Forget implements process.CheckpointStore.
func (s *Uploader) Forget(dir string) {
	for _, suffix := range []string{manifestSuffix, incomingSuffix, outgoingSuffix, listSuffix} {
		if err := run.RemoveAll(dir + suffix); err != nil {
			s.cfg.Log.Warn("removing a checkpoint's file failed", slog.String("path", dir+suffix), slog.Any("error", err))
		}
	}
}

func folderError(err error) error {
	return run.Failf(muster.WorkerInternal, "create the checkpoint folder: %w", err)
}
