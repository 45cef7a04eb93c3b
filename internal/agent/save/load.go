package save

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
	Blobs Blobs
	Saved func(a muster.AttemptID, tree string) // tells the server, which has the tree by then
	Log   *slog.Logger
}

// Blobs brings bytes to the server and back. Its errors are run.TaskErrors.
type Blobs interface {
	UploadFile(ctx context.Context, f *os.File) (sha256 string, size int64, err error)
	FetchTree(ctx context.Context, sha256, dir string) error
}

// Saver implements run.Checkpoints.
type Saver struct{ cfg Config }

var _ run.Checkpoints = (*Saver)(nil)

// New makes a Saver.
func New(cfg Config) *Saver { return &Saver{cfg} }

// What a folder is called while it is replaced.
const (
	comingSuffix = ".coming"
	goingSuffix  = ".going"
)

// Load implements run.Checkpoints.
func (s *Saver) Load(ctx context.Context, t *run.Task, dir string) error {
	if t.Checkpoint == "" || readNote(dir).holds(t.Checkpoint) {
		return nil
	}
	coming, going := dir+comingSuffix, dir+goingSuffix
	if err := errors.Join(run.RemoveAll(coming), run.RemoveAll(going)); err != nil {
		return failed(err)
	}
	if err := os.Mkdir(coming, 0o700); err != nil {
		return failed(err)
	}
	if err := s.cfg.Blobs.FetchTree(ctx, t.Checkpoint, coming); err != nil {
		if rerr := run.RemoveAll(coming); rerr != nil {
			s.cfg.Log.Warn("a checkpoint that was not fetched whole stays", slog.String("folder", coming), slog.Any("error", rerr))
		}
		return run.Failf(muster.FetchFailed, "the checkpoint could not be fetched: %w", err)
	}
	if err := removeNote(dir); err != nil {
		return failed(err)
	}
	if err := os.Rename(dir, going); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(err)
	}
	if err := os.Rename(coming, dir); err != nil {
		return failed(err)
	}
	n := &note{}
	n.was(t.Checkpoint)
	if err := n.write(dir); err != nil {
		return failed(err)
	}
	if err := run.RemoveAll(going); err != nil {
		s.cfg.Log.Warn("an old checkpoint stays", slog.String("folder", going), slog.Any("error", err))
	}
	return nil
}

// Forget implements run.Checkpoints.
func (s *Saver) Forget(dir string) {
	for _, suffix := range []string{noteSuffix, noteSuffix + newSuffix, comingSuffix, goingSuffix, listSuffix} {
		if err := run.RemoveAll(dir + suffix); err != nil {
			s.cfg.Log.Warn("what belongs to a checkpoint stays", slog.String("path", dir+suffix), slog.Any("error", err))
		}
	}
}

func failed(err error) error {
	return run.Failf(muster.WorkerInternal, "the checkpoint's folder cannot be made: %w", err)
}
