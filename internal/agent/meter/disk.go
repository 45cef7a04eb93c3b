package meter

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"github.com/muster-dev/muster"
)

// DiskUsage adds up the disk blocks of folders, at least minEntry for each file and folder. It reports false if they hold more than 200,000
// files, cannot be read, or ctx ends before it is done.
func DiskUsage(ctx context.Context, folders ...string) (size muster.Size, ok bool) {
	w := walker{maxEntries: maxFiles, maxSize: math.MaxInt64}
	err := w.walk(ctx, folders)
	return w.size, err == nil
}

const (
	// maxFiles is how many files of an attempt without a disk limit are counted: a longer walk loads the disk too much.
	maxFiles = 200_000
	// minEntry is the least that a file counts: empty files take space, too, and there is only so much for them.
	minEntry = 4 << 10
	// readBatch is how many entries of a folder are in memory.
	readBatch = 1000
)

var (
	errTooMany = errors.New("too many files")
	errTooDeep = errors.New("folders are nested too deeply")
)

// walker adds up folders.
type walker struct {
	maxEntries int
	maxSize    muster.Size // the walk ends when it is exceeded

	size    muster.Size
	entries int // files and folders
}

// walk adds up folders. Files that are removed meanwhile do not count. The error is errTooDeep if a path is longer than the system accepts.
func (w *walker) walk(ctx context.Context, folders []string) error {
	for _, folder := range folders {
		info, err := os.Lstat(folder)
		if err == nil {
			w.add(info)
			err = w.walkDir(ctx, folder)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) full() bool { return w.size > w.maxSize }

func (w *walker) add(info fs.FileInfo) {
	w.entries++
	w.size += max(blocks(info), minEntry)
}

// walkDir adds up what is in a folder.
func (w *walker) walkDir(ctx context.Context, dir string) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|openFolder, 0)
	if errors.Is(err, syscall.ENAMETOOLONG) {
		return errTooDeep
	}
	if err != nil {
		return nil //nolint:nilerr // it was removed, or the task denies access
	}
	var inner []string
	for err == nil && !w.full() {
		var list []fs.DirEntry
		list, err = f.ReadDir(readBatch)
		for _, entry := range list {
			if w.entries >= w.maxEntries || ctx.Err() != nil {
				_ = f.Close()
				return errTooMany
			}
			info, e := entry.Info()
			switch {
			case errors.Is(e, syscall.ENAMETOOLONG):
				_ = f.Close()
				return errTooDeep
			case e != nil: // it was removed
			default:
				w.add(info)
				if info.IsDir() {
					inner = append(inner, entry.Name())
				}
			}
		}
	}
	_ = f.Close()
	for _, name := range inner {
		if w.full() {
			return nil
		}
		if err := w.walkDir(ctx, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
