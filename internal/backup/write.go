package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// snapshotName is the file in the data directory that has a copy of the database during a backup.
const snapshotName = "backup.tmp"

// Source is a data directory.
type Source struct {
	Data    string
	Version string // of the program
	// Snapshot writes a copy of the database to a new file.
	Snapshot func(ctx context.Context, path string) (store.DatabaseInfo, error)
	// Databases are open databases that change in place, by their name relative to Data. View calls f with the content as of one moment.
	Databases map[string]View
	// Hold stops the deletion of logs and blobs until release is called; nil if nothing deletes them.
	Hold func(ctx context.Context) (release func(), err error)
}

// View calls f with a database's size in bytes and a writer of all of them.
type View func(f func(size int64, content io.WriterTo) error) error

// Write writes a backup to w. It reads files while others write them. It needs space for a copy of the database in
// the data directory; only one Write at a time may use a data directory. If it fails, what it wrote is not a backup.
func Write(ctx context.Context, w io.Writer, s Source) (_ Summary, err error) {
	if s.Hold != nil {
		release, err := s.Hold(ctx)
		if err != nil {
			return Summary{}, err
		}
		defer release()
	}
	if err := RemoveLeftovers(s.Data); err != nil {
		return Summary{}, err
	}
	info, err := s.Snapshot(ctx, filepath.Join(s.Data, snapshotName))
	if err != nil {
		return Summary{}, err
	}
	defer func() { err = errors.Join(err, RemoveLeftovers(s.Data)) }()
	root, err := os.OpenRoot(s.Data)
	if err != nil {
		return Summary{}, readError(err)
	}
	defer func() { _ = root.Close() }()
	t := &writer{
		ctx: ctx, tar: tar.NewWriter(w), root: root, source: s, digest: newDigest(),
		head: Head{
			Format: formatVersion, Version: s.Version, CreatedAt: muster.NewTime(time.Now()), Database: info.ID, Schema: info.Schema, NextJob: info.NextJob,
		},
	}
	if err := t.all(); err != nil {
		return Summary{}, err
	}
	e := t.digest.end(t.damaged)
	return Summary{Head: t.head, Files: e.Files, Bytes: e.Bytes, Damaged: e.Damaged}, nil
}

// RemoveLeftovers removes what a killed backup left in a data directory. No backup of it may be running.
func RemoveLeftovers(data string) error {
	for _, suffix := range []string{"", "-journal"} {
		if err := os.Remove(filepath.Join(data, snapshotName+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return muster.Errorf(muster.Unavailable, "cannot remove the copy of the database of a backup: %w", err)
		}
	}
	return nil
}

type writer struct {
	ctx     context.Context //nolint:containedctx // of one call of Write
	tar     *tar.Writer
	root    *os.Root
	source  Source
	head    Head
	digest  *digest
	damaged []string
}

func (t *writer) all() error {
	if err := t.describe(headName, t.head); err != nil {
		return err
	}
	if err := t.file(DatabaseName, snapshotName); err != nil {
		return err
	}
	for _, name := range files {
		if err := t.file(name, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, d := range directories {
		if err := t.directory(d.name, d.skip); err != nil {
			return err
		}
	}
	if err := t.describe(endName, t.digest.end(t.damaged)); err != nil {
		return err
	}
	return t.tar.Close()
}

// describe writes an entry that is not a file of the data directory.
func (t *writer) describe(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if name == headName {
		_, _ = t.digest.Write(text) // never fails
	}
	if err := t.tar.WriteHeader(t.header(name, int64(len(text)))); err != nil {
		return err
	}
	_, err = t.tar.Write(text)
	return err
}

func (t *writer) header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: t.head.CreatedAt.Std(), Format: tar.FormatPAX}
}

// directory writes a directory's files, recursively. Those that vanish meanwhile are left out: the directory is listed
// again, because a log's oldest part may have been replaced by its summary.
func (t *writer) directory(name string, skip func(string) bool) error {
	top, _, _ := strings.Cut(name, "/")
	written := make(map[string]bool)
	for range 10 {
		again := false
		entries, err := fs.ReadDir(t.root.FS(), name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return readError(err)
		}
		for _, e := range entries {
			file := name + "/" + e.Name()
			if written[file] || t.left(top, file, e, skip) {
				continue
			}
			switch {
			case e.IsDir():
				err = t.directory(file, skip)
			default:
				err = t.file(file, file)
			}
			if errors.Is(err, fs.ErrNotExist) {
				again = true
				continue
			}
			if err != nil {
				return err
			}
			written[file] = true
		}
		if !again {
			return nil
		}
	}
	return nil
}

// left reports whether an entry of a directory is left out.
func (t *writer) left(top, file string, e fs.DirEntry, skip func(string) bool) bool {
	if !e.IsDir() && !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") && strings.HasSuffix(e.Name(), ".tmp") {
		return true
	}
	within := strings.TrimPrefix(file, top+"/")
	if top == "logs" {
		// Logs of later jobs would look like jobs that the database lost.
		if job, ok := jobOfLog(within); ok && job >= t.head.NextJob {
			return true
		}
	}
	return skip(within)
}

// file writes an entry with the content of a file. The error is fs.ErrNotExist if the file does not exist.
func (t *writer) file(name, from string) error {
	if err := t.ctx.Err(); err != nil {
		return muster.Errorf(muster.Unavailable, "the backup was interrupted: %w", context.Cause(t.ctx))
	}
	if view := t.source.Databases[name]; view != nil {
		return view(func(size int64, content io.WriterTo) error {
			return t.entry(name, size, func(w io.Writer) error {
				_, err := content.WriteTo(w)
				return err
			})
		})
	}
	f, err := t.root.Open(filepath.FromSlash(from))
	if errors.Is(err, fs.ErrNotExist) {
		return fs.ErrNotExist
	}
	if err != nil {
		return readError(err)
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return readError(err)
	}
	return t.entry(name, stat.Size(), func(w io.Writer) error { return t.content(w, name, f, stat.Size()) })
}

// content copies size bytes of a file, which may grow meanwhile. What cannot be read is replaced by zeros.
func (t *writer) content(w io.Writer, name string, f io.Reader, size int64) error {
	sum := sha256.New()
	if _, ok := blobSum(name); !ok {
		sum = nil
	}
	buf := make([]byte, 128<<10)
	damaged := false
	for left := size; left > 0; {
		if err := t.ctx.Err(); err != nil {
			return muster.Errorf(muster.Unavailable, "the backup was interrupted: %w", context.Cause(t.ctx))
		}
		n := min(left, int64(len(buf)))
		if !damaged {
			read, err := io.ReadFull(f, buf[:n])
			if n = int64(read); err != nil && n == 0 {
				damaged = true
				clear(buf)
				continue
			}
		}
		if sum != nil {
			sum.Write(buf[:n])
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		left -= n
	}
	if want, ok := blobSum(name); ok && hex.EncodeToString(sum.Sum(nil)) != want {
		damaged = true
	}
	if damaged {
		if name == DatabaseName {
			return muster.Errorf(muster.Internal, "the copy of the database cannot be read: check the disk of the data directory")
		}
		t.damaged = append(t.damaged, name)
	}
	return nil
}

func (t *writer) entry(name string, size int64, content func(io.Writer) error) error {
	if err := t.tar.WriteHeader(t.header(name, size)); err != nil {
		return err
	}
	t.digest.entry(name, size)
	return content(io.MultiWriter(t.digest, t.tar))
}

func readError(err error) error {
	return muster.Errorf(muster.Unavailable, "cannot read the data directory: %w", err)
}
