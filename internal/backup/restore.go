package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/store"
)

// IncompleteName is a file in a data directory that a restore did not complete. Restore clears such a directory; a server refuses it.
const IncompleteName = "restore-incomplete"

// Incomplete reports whether a restore into a directory did not complete.
func Incomplete(data string) bool {
	_, err := os.Lstat(filepath.Join(data, IncompleteName))
	return err == nil
}

// maxDescription bounds the entries that describe a backup.
const maxDescription = 64 << 20

// Check reads a whole backup to its end, so that a copy made from what it reads is whole, and verifies it, except that it does not open the database.
func Check(ctx context.Context, r io.Reader) (Summary, error) { return read(ctx, r, discard{}) }

// Restore extracts a backup into the directory data, which must be empty or not exist. If it fails, or is killed and repeated, nothing of the backup
// is left there. verify checks the restored database. Files that the backup lists as damaged are not restored; see Summary.
func Restore(ctx context.Context, r io.Reader, data string, verify func(ctx context.Context, path string) (store.DatabaseInfo, error)) (_ Summary, err error) {
	created, err := prepare(data)
	if err != nil {
		return Summary{}, err
	}
	root, err := os.OpenRoot(data)
	if err != nil {
		return Summary{}, writeError(err)
	}
	defer func() { _ = root.Close() }()
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, empty(root))
		if created {
			_ = os.Remove(data) // not if somebody put files there
		}
	}()
	s, err := read(ctx, r, extractor{root})
	if err != nil {
		return Summary{}, err
	}
	info, err := verify(ctx, filepath.Join(data, DatabaseName))
	if muster.CodeOf(err) == muster.Conflict {
		err = muster.Errorf(muster.Conflict, "the backup is of muster %s: %w", s.Version, err)
	}
	if err != nil {
		return Summary{}, err
	}
	if info.ID != s.Database || info.Schema != s.Schema {
		return Summary{}, damagedError("its database is another one than it says")
	}
	if err := syncTree(data); err != nil {
		return Summary{}, writeError(err)
	}
	if err := root.Remove(IncompleteName); err != nil {
		return Summary{}, writeError(err)
	}
	return s, writeError(errors.Join(atomicfile.SyncDir(data), atomicfile.SyncDir(filepath.Dir(data))))
}

// prepare makes an empty directory with the mark of an incomplete restore. created reports whether there was no directory.
func prepare(data string) (created bool, err error) {
	entries, err := os.ReadDir(data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		created = true
		if err := os.MkdirAll(data, 0o700); err != nil {
			return false, writeError(err)
		}
	case err != nil:
		return false, writeError(err)
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == IncompleteName }) {
		root, err := os.OpenRoot(data)
		if err != nil {
			return false, writeError(err)
		}
		defer func() { _ = root.Close() }()
		if err := empty(root); err != nil {
			return false, err
		}
		if entries, err = os.ReadDir(data); err != nil {
			return false, writeError(err)
		}
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "lost+found" }) // of a file system of its own
	if len(entries) > 0 {
		return false, muster.Errorf(muster.Conflict, "the directory %s is not empty: choose another one with --data, or move its files away", data)
	}
	f, err := os.OpenFile(filepath.Join(data, IncompleteName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return created, writeError(err)
	}
	return created, writeError(errors.Join(f.Close(), atomicfile.SyncDir(data)))
}

// empty removes what a restore writes, the mark last.
func empty(root *os.Root) error {
	names := []string{DatabaseName}
	names = append(names, files...)
	for _, d := range directories {
		names = append(names, d.name)
	}
	for _, name := range append(names, IncompleteName) {
		if err := root.RemoveAll(name); err != nil {
			return writeError(err)
		}
	}
	return nil
}

// target receives the files of a backup.
type target interface {
	create(name string) (io.WriteCloser, error)
	remove(name string) error
}

type discard struct{}

func (discard) create(string) (io.WriteCloser, error) { return discard{}, nil }
func (discard) remove(string) error                   { return nil }
func (discard) Write(p []byte) (int, error)           { return len(p), nil }
func (discard) Close() error                          { return nil }

type extractor struct{ root *os.Root }

func (x extractor) create(name string) (io.WriteCloser, error) {
	if dir := path.Dir(name); dir != "." {
		if err := x.root.MkdirAll(dir, 0o700); err != nil {
			return nil, writeError(err)
		}
	}
	f, err := x.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	return f, writeError(err)
}

func (x extractor) remove(name string) error { return writeError(x.root.Remove(name)) }

// read verifies a stream and gives its files to to.
func read(ctx context.Context, r io.Reader, to target) (s Summary, err error) {
	t := &reader{ctx: ctx, tar: tar.NewReader(r), to: to, digest: newDigest(), seen: make(map[string]bool)}
	if err := t.head(&s.Head); err != nil {
		return Summary{}, err
	}
	for {
		h, err := t.next()
		if err != nil {
			return Summary{}, err
		}
		if h.Name == endName {
			s, err := t.end(h, s)
			if err != nil {
				return Summary{}, err
			}
			if _, err := t.tar.Next(); !errors.Is(err, io.EOF) { // reads the end of the archive
				return Summary{}, damagedError("it does not end after %s", endName)
			}
			return s, nil
		}
		if err := t.file(h); err != nil {
			return Summary{}, err
		}
	}
}

type reader struct {
	ctx      context.Context //nolint:containedctx // of one call
	tar      *tar.Reader
	to       target
	digest   *digest
	database bool
	damaged  []string // blobs whose content does not match their name
	seen     map[string]bool
}

// next returns the next entry. There is always one before the end of a backup.
func (t *reader) next() (*tar.Header, error) {
	if t.ctx.Err() != nil {
		return nil, muster.Errorf(muster.Unavailable, "reading the backup was interrupted: %w", context.Cause(t.ctx))
	}
	h, err := t.tar.Next()
	if err != nil {
		return nil, t.readError(err)
	}
	if h.Typeflag != tar.TypeReg {
		return nil, damagedError("its entry %.200q is not a file", h.Name)
	}
	return h, nil
}

func (t *reader) readError(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return damagedError("it ends too early")
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong), errors.Is(err, tar.ErrInsecurePath):
		return damagedError("%w", err)
	}
	return muster.Errorf(muster.Unavailable, "cannot read the backup: %w", err)
}

func (t *reader) head(h *Head) error {
	entry, err := t.tar.Next()
	if err != nil || entry.Name != headName || entry.Typeflag != tar.TypeReg {
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, tar.ErrHeader) {
			return t.readError(err)
		}
		return muster.Errorf(muster.Invalid, "this is not a backup of muster, or it is compressed: decompress it first")
	}
	text, err := t.description(entry)
	if err != nil {
		return err
	}
	_, _ = t.digest.Write(text) // never fails
	if err := json.Unmarshal(text, h); err != nil {
		return damagedError("%w", err)
	}
	if h.Format != formatVersion {
		return muster.Errorf(muster.Conflict, "this is a backup of muster %.100s in format %d, and this muster reads format %d: use muster %.100s or newer",
			h.Version, h.Format, formatVersion, h.Version)
	}
	return nil
}

func (t *reader) description(h *tar.Header) ([]byte, error) {
	if h.Size > maxDescription {
		return nil, damagedError("its entry %s is too long", h.Name)
	}
	text := bytes.NewBuffer(make([]byte, 0, min(h.Size, 1<<20)))
	if _, err := io.Copy(text, t.tar); err != nil {
		return nil, t.readError(err)
	}
	return text.Bytes(), nil
}

func (t *reader) file(h *tar.Header) (err error) {
	if !known(h.Name) {
		return damagedError("it has an unexpected file %.200q", h.Name)
	}
	t.digest.entry(h.Name, h.Size)
	f, err := t.to.create(h.Name)
	if errors.Is(err, fs.ErrExist) {
		return damagedError("it has the file %.200q twice", h.Name)
	}
	if err != nil {
		return err
	}
	open := true
	defer func() {
		if open {
			err = errors.Join(err, f.Close())
		}
	}()
	w := fileWriter{f: f}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(t.digest, sum, &w), contextReader{t.ctx, t.tar}); err != nil {
		if w.err != nil {
			return writeError(w.err)
		}
		return t.readError(err)
	}
	open = false
	if err := f.Close(); err != nil {
		return writeError(err)
	}
	if want, ok := blobSum(h.Name); ok && hex.EncodeToString(sum.Sum(nil)) != want {
		t.damaged = append(t.damaged, h.Name)
	}
	t.database = t.database || h.Name == DatabaseName
	return nil
}

func (t *reader) end(h *tar.Header, s Summary) (Summary, error) {
	text, err := t.description(h)
	if err != nil {
		return Summary{}, err
	}
	var e end
	if err := json.Unmarshal(text, &e); err != nil {
		return Summary{}, damagedError("%w", err)
	}
	if want := t.digest.end(nil); e.SHA256 != want.SHA256 || e.Files != want.Files || e.Bytes != want.Bytes || !t.database {
		return Summary{}, damagedError("its content does not match its checksum")
	}
	for _, name := range t.damaged {
		if !slices.Contains(e.Damaged, name) {
			return Summary{}, damagedError("the content of %s does not match its name", name)
		}
	}
	for _, name := range e.Damaged {
		if !known(name) || name == DatabaseName {
			return Summary{}, damagedError("it lists %.200q as damaged", name)
		}
		if err := t.to.remove(name); err != nil {
			return Summary{}, err
		}
	}
	s.Files, s.Bytes, s.Damaged = e.Files, e.Bytes, e.Damaged
	return s, nil
}

// fileWriter keeps the error of writing, so that it is not taken for one of reading.
type fileWriter struct {
	f   io.Writer
	err error
}

func (w *fileWriter) Write(p []byte) (n int, err error) {
	n, err = w.f.Write(p)
	w.err = err
	return n, err
}

type contextReader struct {
	ctx context.Context //nolint:containedctx // of one call
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

func damagedError(format string, args ...any) error {
	return muster.Errorf(muster.Invalid, "the backup is damaged: "+format+": use another backup", args...)
}

// writeError converts an error of writing the data directory; nil stays nil.
func writeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return muster.Errorf(muster.StorageFull, "no space left for the data directory: free some, or choose a directory on another disk: %w", err)
	}
	return muster.Errorf(muster.Unavailable, "cannot write the data directory: %w", err)
}
