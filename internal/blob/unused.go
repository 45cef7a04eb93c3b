package blob

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	removedDir = "removed" // files of removed blobs, until they are deleted
	// touchInterval is how exact the times of blobs are: a younger one is not written again.
	touchInterval = 10 * time.Minute
	damagedTTL    = 30 * 24 * time.Hour // for quarantined files
)

// File is the file of a blob.
type File struct {
	SHA256 string
	Size   int64
	At     time.Time // when the blob was uploaded or touched, on the clock of Now
}

// Now returns the time of the clock that Touch and Put write, which does not follow steps of the system's clock.
func (d *Dir) Now() time.Time { return d.opened.Add(time.Since(d.opened)) }

// Touch implements Store. The time is exact to 10 minutes.
func (d *Dir) Touch(_ context.Context, sum string) (int64, error) {
	if err := checkHash(sum); err != nil {
		return 0, err
	}
	d.renameMu.Lock()
	defer d.renameMu.Unlock()
	info, err := os.Stat(d.path(sum))
	if err != nil {
		return 0, wrapError("read", sum, err)
	}
	now := d.Now()
	if age := now.Sub(info.ModTime()); age >= touchInterval || age <= -touchInterval {
		if err := os.Chtimes(d.path(sum), now, now); err != nil {
			return 0, wrapError("keep", sum, err)
		}
	}
	return info.Size(), nil
}

// RemoveUnused removes a blob that was neither uploaded nor touched since a time. It returns false if there is none such.
// Its file may still be read by those who opened it.
func (d *Dir) RemoveUnused(_ context.Context, sum string, since time.Time) (size int64, removed bool, err error) {
	if err := checkHash(sum); err != nil {
		return 0, false, err
	}
	moved := filepath.Join(d.root, removedDir, sum)
	size, err = d.renameUnused(sum, since, moved)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errUsed):
		return 0, false, nil
	case err != nil:
		return 0, false, wrapError("remove", sum, err)
	}
	if err := os.Remove(moved); err != nil && !errors.Is(err, fs.ErrNotExist) { // slow for large files
		return size, true, wrapError("remove", sum, err)
	}
	return size, true, nil
}

var errUsed = errors.New("the blob was touched")

func (d *Dir) renameUnused(sum string, since time.Time, moved string) (int64, error) {
	d.renameMu.Lock()
	defer d.renameMu.Unlock()
	info, err := os.Stat(d.path(sum))
	if err != nil {
		return 0, err
	}
	if !info.ModTime().Before(since) {
		return 0, errUsed
	}
	return info.Size(), os.Rename(d.path(sum), moved)
}

// Files lists up to limit blobs in the order of their hashes, from the one after the given hash; "" lists from the first one. A shorter list is
// the last one.
func (d *Dir) Files(ctx context.Context, after string, limit int) ([]File, error) {
	var files []File
	err := subfolders(d.root, prefix(after, 2), func(outer string) error {
		from := ""
		if outer == prefix(after, 2) {
			from = strings.TrimPrefix(prefix(after, 4), outer)
		}
		return subfolders(filepath.Join(d.root, outer), from, func(inner string) error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if len(files) >= limit {
				return fs.SkipAll
			}
			list, err := readFiles(filepath.Join(d.root, outer, inner), after)
			files = append(files, list...)
			return err
		})
	})
	if err != nil && !errors.Is(err, fs.SkipAll) {
		return nil, wrapError("list", after, err)
	}
	return files[:min(limit, len(files))], nil
}

func prefix(sum string, n int) string { return sum[:min(n, len(sum))] }

// subfolders calls visit with the names of a folder's subfolders of two hex digits, in order from one on.
func subfolders(folder, from string, visit func(name string) error) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if err == nil && len(e.Name()) == 2 && e.Name() >= from && e.IsDir() {
			err = visit(e.Name())
		}
	}
	return err
}

// readFiles returns the blobs of one folder with hashes after the given one. Files that vanish meanwhile are left out.
func readFiles(folder, after string) ([]File, error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var files []File
	for _, e := range entries {
		if e.Name() <= after || checkHash(e.Name()) != nil {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, File{SHA256: e.Name(), Size: info.Size(), At: info.ModTime()})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.SHA256, b.SHA256) })
	return files, nil
}

// purge deletes what a crash left of removed blobs, and quarantined files of a month ago.
func (d *Dir) purge() error {
	removed, err := os.ReadDir(filepath.Join(d.root, removedDir))
	for _, e := range removed {
		err = errors.Join(err, os.Remove(filepath.Join(d.root, removedDir, e.Name())))
	}
	damaged, readErr := os.ReadDir(filepath.Join(d.root, damagedDir))
	if !errors.Is(readErr, fs.ErrNotExist) {
		err = errors.Join(err, readErr)
	}
	for _, e := range damaged {
		_, at, _ := strings.Cut(e.Name(), ".")
		nanos, parseErr := strconv.ParseInt(at, 10, 64)
		if parseErr == nil && d.Now().Sub(time.Unix(0, nanos)) > damagedTTL {
			err = errors.Join(err, os.Remove(filepath.Join(d.root, damagedDir, e.Name())))
		}
	}
	return err
}
