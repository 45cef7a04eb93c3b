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

// Config is what a Saver is made of.
type Config struct {
	Blobs   Blobs
	OnSaved func(a muster.AttemptID, tree string) // tells the server, which has the tree by then
	Log     *slog.Logger
}

// Blobs brings bytes to the server and back. Its errors are run.TaskErrors.
type Blobs interface {
	UploadFile(ctx context.Context, f *os.File) (sha256 string, size int64, err error)
	FetchTree(ctx context.Context, sha256, dir string) error
}

// Uploader implements run.Checkpoints.
type Uploader struct{ cfg Config }

var _ run.CheckpointStore = (*Uploader)(nil)

// New makes a Saver.
func New(cfg Config) *Uploader { return &Uploader{cfg} }

// What a folder is called while it is replaced.
const (
	incomingSuffix = ".coming"
	outgoingSuffix = ".going"
)

// Load implements run.Checkpoints.
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
			s.cfg.Log.Warn("a checkpoint that was not fetched whole stays", slog.String("folder", incoming), slog.Any("error", rerr))
		}
		return run.Failf(muster.FetchFailed, "the checkpoint could not be fetched: %w", err)
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
		s.cfg.Log.Warn("an old checkpoint stays", slog.String("folder", outgoing), slog.Any("error", err))
	}
	return nil
}

// Forget implements run.Checkpoints.
func (s *Uploader) Forget(dir string) {
	for _, suffix := range []string{manifestSuffix, manifestSuffix + newSuffix, incomingSuffix, outgoingSuffix, listSuffix} {
		if err := run.RemoveAll(dir + suffix); err != nil {
			s.cfg.Log.Warn("what belongs to a checkpoint stays", slog.String("path", dir+suffix), slog.Any("error", err))
		}
	}
}

func folderError(err error) error {
	return run.Failf(muster.WorkerInternal, "the checkpoint's folder cannot be made: %w", err)
}
