package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
)

// Dir keeps blobs as files in a folder: ab/cd/abcd… holds a blob,
// partial/abcd…-OWNER what came of one so far, and damaged/abcd….TIME one that was set aside. A blob's file gets its name only after its
// bytes were verified and synced. Only one Dir at a time may use a folder.
type Dir struct {
	root string

	mu    sync.Mutex
	puts  map[string]*put // by the name of what is unfinished
	swept time.Time

	names sync.Mutex // held while a file gets or loses the name of a blob
}

var _ Store = (*Dir)(nil)

// put lets one Put of a hash and an owner in at a time.
type put struct {
	users int           // guarded by Dir.mu
	turn  chan struct{} // holds a value while one is in
}

const (
	keepPartial = 7 * 24 * time.Hour // an unfinished Put that nobody goes on with
	sweepEvery  = time.Hour          // with a Put, for those
)

const (
	partialDir = "partial"
	damagedDir = "damaged"
)

// OpenDir uses the folder at path and makes it if needed. Unfinished Puts that
// nobody went on with for a week are dropped, then and later.
func OpenDir(path string) (*Dir, error) {
	d := &Dir{root: filepath.Clean(path), puts: make(map[string]*put)}
	partial := filepath.Join(d.root, partialDir)
	if err := os.MkdirAll(partial, 0o700); err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot make the folder for blobs: %w", err)
	}
	if err := d.sweep(); err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot drop an unfinished blob: %w", err)
	}
	return d, nil
}

// sweep drops the unfinished Puts that nobody went on with. Nobody does now: the
// caller has d.mu, or d for itself.
func (d *Dir) sweep() error {
	d.swept = time.Now()
	entries, err := os.ReadDir(filepath.Join(d.root, partialDir))
	for _, e := range entries {
		info, infoErr := e.Info()
		if infoErr != nil || d.puts[e.Name()] != nil || time.Since(info.ModTime()) < keepPartial {
			continue
		}
		err = errors.Join(err, os.Remove(d.partial(e.Name())))
	}
	return err
}

func (d *Dir) path(sum string) string     { return filepath.Join(d.root, sum[:2], sum[2:4], sum) }
func (d *Dir) partial(name string) string { return filepath.Join(d.root, partialDir, name) }

// Stat implements Store.
func (d *Dir) Stat(_ context.Context, sum string) (int64, error) {
	if err := CheckHash(sum); err != nil {
		return 0, err
	}
	info, err := os.Stat(d.path(sum))
	if err != nil {
		return 0, failed("read", sum, err)
	}
	return info.Size(), nil
}

// Open implements Store.
func (d *Dir) Open(_ context.Context, sum string) (io.ReadSeekCloser, error) {
	if err := CheckHash(sum); err != nil {
		return nil, err
	}
	f, err := os.Open(d.path(sum))
	if err != nil {
		return nil, failed("read", sum, err)
	}
	return f, nil
}

// Partial implements Store.
func (d *Dir) Partial(_ context.Context, sum string) (int64, error) {
	if err := CheckHash(sum); err != nil {
		return 0, err
	}
	return d.partialSize(sum, sum)
}

func (d *Dir) partialSize(name, sum string) (int64, error) {
	info, err := os.Stat(d.partial(name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, failed("read", sum, err)
	}
	return info.Size(), nil
}

// Put implements Store. A second Put of the same hash waits for the first.
func (d *Dir) Put(ctx context.Context, sum string, offset int64, r io.Reader) error {
	if err := CheckHash(sum); err != nil {
		return err
	}
	leave, err := d.enter(ctx, sum, sum)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := os.Stat(d.path(sum)); err == nil {
		return nil
	}
	return d.put(ctx, sum, sum, offset, r)
}

// put takes the bytes of a blob by way of an unfinished file, whose turn the caller has.
func (d *Dir) put(ctx context.Context, name, sum string, offset int64, r io.Reader) error {
	have, err := d.partialSize(name, sum)
	if err != nil {
		return err
	}
	if offset != have {
		return muster.Errorf(muster.Conflict, "the blob %s has %d bytes so far: go on from there, not from %d", sum, have, offset)
	}
	f, err := os.OpenFile(d.partial(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return failed("write", sum, err)
	}
	got, err := receive(ctx, f, sum, r)
	if err != nil {
		_ = f.Close() // what came is kept as far as it was written
		return err
	}
	return d.finish(f, sum, got)
}

// Of implements Store.
func (d *Dir) Of(owner string) Uploads {
	sum := sha256.Sum256([]byte(owner))
	return uploads{d, "-" + hex.EncodeToString(sum[:8])}
}

// uploads is a Dir as one owner uses it.
type uploads struct {
	dir    *Dir
	suffix string // of the owner's unfinished files
}

// Partial implements Uploads.
func (u uploads) Partial(_ context.Context, sum string) (int64, error) {
	if err := CheckHash(sum); err != nil {
		return 0, err
	}
	return u.dir.partialSize(sum+u.suffix, sum)
}

// Put implements Uploads.
func (u uploads) Put(ctx context.Context, sum string, offset int64, r io.Reader) error {
	if err := CheckHash(sum); err != nil {
		return err
	}
	leave, err := u.dir.enter(ctx, sum+u.suffix, sum)
	if err != nil {
		return err
	}
	defer leave()
	return u.dir.put(ctx, sum+u.suffix, sum, offset, r)
}

// SetAside implements Store.
func (d *Dir) SetAside(_ context.Context, sum string, read io.ReadSeekCloser) (bool, error) {
	defer read.Close() // the file keeps its inode until it was compared
	if err := CheckHash(sum); err != nil {
		return false, err
	}
	folder := filepath.Join(d.root, damagedDir)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return false, failed("set aside", sum, err)
	}
	moved, err := d.moveAside(sum, read, filepath.Join(folder, sum+"."+strconv.FormatInt(time.Now().UnixNano(), 10)))
	if err == nil && moved {
		err = errors.Join(syncFolder(folder), syncFolder(filepath.Dir(d.path(sum))))
	}
	if err != nil {
		return false, failed("set aside", sum, err)
	}
	return moved, nil
}

// moveAside renames a blob's file to path if it is the one that was read.
func (d *Dir) moveAside(sum string, read io.ReadSeekCloser, path string) (bool, error) {
	f, ok := read.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false, fmt.Errorf("%T is not a file of this store", read)
	}
	was, err := f.Stat()
	if err != nil {
		return false, err
	}
	d.names.Lock()
	defer d.names.Unlock()
	is, err := os.Stat(d.path(sum))
	if err == nil && os.SameFile(was, is) {
		_ = read.Close() // some systems rename no open files
		err = os.Rename(d.path(sum), path)
		return err == nil, err
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return false, err
}

// name gives a verified file the name of its blob.
func (d *Dir) name(partial, path string) error {
	d.names.Lock()
	defer d.names.Unlock()
	return os.Rename(partial, path)
}

// enter waits for the turn to put a hash by way of an unfinished file. The caller calls leave at the end.
func (d *Dir) enter(ctx context.Context, name, sum string) (leave func(), err error) {
	d.mu.Lock()
	if time.Since(d.swept) >= sweepEvery {
		_ = d.sweep() // what stays is tried again
	}
	p := d.puts[name]
	if p == nil {
		p = &put{turn: make(chan struct{}, 1)}
		d.puts[name] = p
	}
	p.users++
	d.mu.Unlock()
	gone := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(d.puts, name)
		}
	}
	select {
	case p.turn <- struct{}{}:
		return func() { <-p.turn; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, muster.Errorf(muster.Unavailable, "another upload of the blob %s is under way: %w", sum, context.Cause(ctx))
	}
}

// receive hashes what f holds, appends the bytes of r, and returns the hash of the whole.
func receive(ctx context.Context, f *os.File, sum string, r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", failed("read", sum, err)
	}
	w := &sink{file: f, hash: h}
	if _, err := io.Copy(w, &ctxReader{ctx: ctx, r: r}); err != nil {
		if w.err != nil {
			return "", failed("write", sum, w.err)
		}
		return "", muster.Errorf(muster.Unavailable, "the upload of the blob %s broke off: go on from where it stopped: %w", sum, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// finish gives verified bytes their name, and drops others.
func (d *Dir) finish(f *os.File, sum, got string) error {
	partial := f.Name()
	if got != sum {
		if err := errors.Join(f.Close(), os.Remove(partial)); err != nil {
			return failed("drop", sum, err)
		}
		return muster.Errorf(muster.Invalid, "the bytes sent as the blob %s have the hash %s: send it again from the start", sum, got)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return failed("write", sum, err)
	}
	path := d.path(sum)
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return failed("write", sum, err)
	}
	if err := d.name(partial, path); err != nil {
		return failed("write", sum, err)
	}
	// The name must last too, in each folder that may be new.
	for _, dir := range []string{folder, filepath.Dir(folder), d.root} {
		if err := syncFolder(dir); err != nil {
			return failed("write", sum, err)
		}
	}
	return nil
}

// Delete implements Store.
func (d *Dir) Delete(_ context.Context, sum string) error {
	if err := CheckHash(sum); err != nil {
		return err
	}
	d.names.Lock()
	defer d.names.Unlock()
	if err := os.Remove(d.path(sum)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed("remove", sum, err)
	}
	return nil
}

// sink writes to a file and hashes what was written. It tells its own errors from
// the reader's.
type sink struct {
	file *os.File
	hash hash.Hash
	err  error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	s.hash.Write(p[:n])
	s.err = err
	return n, err
}

// ctxReader ends when its context does.
type ctxReader struct {
	ctx context.Context //nolint:containedctx // lives for one Put
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

func failed(verb, sum string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return muster.Errorf(muster.NotFound, "there is no blob %s", sum)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return muster.Errorf(muster.StorageFull, "no space left for the blob %s: free some on its disk, then go on: %w", sum, err)
	default:
		return muster.Errorf(muster.Internal, "cannot %s the blob %s: %w", verb, sum, err)
	}
}
