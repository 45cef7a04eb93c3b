package blob

import (
	"context"
	"crypto/sha256"
	"encoding"
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
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/lru"
)

// Dir stores blobs as files in a directory: ab/cd/abcd… is a blob,
// partial/abcd…-OWNER an unfinished upload, damaged/abcd….TIME a quarantined file, and removed/abcd… a removed one. A blob's file gets its
// name only after its bytes were verified and synced; its modification time is when it was uploaded or touched. Only one Dir at a time may use a
// directory.
type Dir struct {
	root   string
	opened time.Time

	mu        sync.Mutex
	uploads   map[string]*uploadLock // by the name in partialDir
	lastSweep time.Time

	renameMu sync.Mutex // held while a blob's file is named, renamed or touched

	// hashes has the states of the hashes of unfinished uploads, by the name in partialDir: who continues one in small pieces does
	// not cost the hash of all that is there each time. They are lost when the server restarts.
	hashes *lru.Cache[string, hashState]
}

// maxHashStates is how many unfinished uploads have the state of their hash kept, of some 100 bytes each.
const maxHashStates = 1000

// hashState is the state of the hash of the first bytes of a file.
type hashState struct {
	size  int64
	state []byte
}

var _ Store = (*Dir)(nil)

// uploadLock admits one Put of a hash and an owner at a time.
type uploadLock struct {
	refs int           // guarded by Dir.mu
	held chan struct{} // holds a value while locked
}

const (
	partialTTL    = 7 * 24 * time.Hour // for unfinished uploads
	sweepInterval = time.Hour
)

const (
	partialDir = "partial"
	damagedDir = "damaged"
)

// OpenDir opens the directory at path, creating it if needed. It drops unfinished uploads
// after a week, now and later, and quarantined files after a month, now.
func OpenDir(path string) (*Dir, error) {
	d := &Dir{root: filepath.Clean(path), opened: time.Now(), uploads: make(map[string]*uploadLock), hashes: lru.NewCounted[string, hashState](maxHashStates)}
	for _, name := range []string{partialDir, removedDir} {
		if err := os.MkdirAll(filepath.Join(d.root, name), 0o700); err != nil {
			return nil, muster.Errorf(muster.Unavailable, "cannot create the directory for blobs: %w", err)
		}
	}
	if err := errors.Join(d.sweep(), d.purge()); err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot delete unfinished uploads and removed blobs: %w", err)
	}
	return d, nil
}

// sweep drops unfinished uploads older than partialTTL. The caller holds d.mu, or owns d.
func (d *Dir) sweep() error {
	d.lastSweep = time.Now()
	entries, err := os.ReadDir(filepath.Join(d.root, partialDir))
	for _, e := range entries {
		info, infoErr := e.Info()
		if infoErr != nil || d.uploads[e.Name()] != nil || time.Since(info.ModTime()) < partialTTL {
			continue
		}
		err = errors.Join(err, os.Remove(d.partialPath(e.Name())))
	}
	return err
}

func (d *Dir) path(sum string) string         { return filepath.Join(d.root, sum[:2], sum[2:4], sum) }
func (d *Dir) partialPath(name string) string { return filepath.Join(d.root, partialDir, name) }

// Stat implements Store.
func (d *Dir) Stat(_ context.Context, sum string) (int64, error) {
	if err := checkHash(sum); err != nil {
		return 0, err
	}
	info, err := os.Stat(d.path(sum))
	if err != nil {
		return 0, wrapError("read", sum, err)
	}
	return info.Size(), nil
}

// Open implements Store.
func (d *Dir) Open(_ context.Context, sum string) (io.ReadSeekCloser, error) {
	if err := checkHash(sum); err != nil {
		return nil, err
	}
	f, err := os.Open(d.path(sum))
	if err != nil {
		return nil, wrapError("read", sum, err)
	}
	return f, nil
}

// Partial implements Store.
func (d *Dir) Partial(ctx context.Context, sum string) (int64, error) {
	return ownerUploads{dir: d}.Partial(ctx, sum)
}

func (d *Dir) partialSize(name, sum string) (int64, error) {
	info, err := os.Stat(d.partialPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, wrapError("read", sum, err)
	}
	return info.Size(), nil
}

// Put implements Store. A second Put of the same hash waits for the first.
func (d *Dir) Put(ctx context.Context, sum string, offset int64, r io.Reader) error {
	return ownerUploads{dir: d}.Put(ctx, sum, offset, r)
}

// writePartial writes the bytes of a blob to an unfinished file and commits it. The caller holds its upload lock.
func (d *Dir) writePartial(ctx context.Context, name, sum string, offset int64, r io.Reader) error {
	have, err := d.partialSize(name, sum)
	if err != nil {
		return err
	}
	if offset != have {
		return muster.Errorf(muster.Conflict, "the upload of the blob %s has %d bytes: continue from there, not from %d", sum, have, offset)
	}
	f, err := os.OpenFile(d.partialPath(name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return wrapError("write", sum, err)
	}
	h, resumed, err := d.resumeHash(f, name, have)
	if err != nil {
		_ = f.Close()
		return wrapError("read", sum, err)
	}
	written, err := appendAndHash(ctx, f, h, sum, r)
	if err != nil {
		_ = f.Close() // the bytes written so far are kept
		d.saveHash(name, have+written, h)
		return err
	}
	got := hex.EncodeToString(h.Sum(nil))
	if resumed && got == sum { // once, when all is there: the file may have been damaged
		if got, err = hashFile(f); err != nil {
			_ = f.Close()
			return wrapError("read", sum, err)
		}
	}
	return d.commit(f, sum, got)
}

// ForOwner implements Store.
func (d *Dir) ForOwner(owner string) Uploader {
	sum := sha256.Sum256([]byte(owner))
	return ownerUploads{d, "-" + hex.EncodeToString(sum[:8])}
}

// ownerUploads is the Uploader of one owner, or of the Dir itself.
type ownerUploads struct {
	dir    *Dir
	suffix string // of the owner's unfinished files; "" for the Dir, which need not receive all bytes of an existing blob
}

// Partial implements Uploader.
func (u ownerUploads) Partial(_ context.Context, sum string) (int64, error) {
	if err := checkHash(sum); err != nil {
		return 0, err
	}
	return u.dir.partialSize(sum+u.suffix, sum)
}

// Put implements Uploader.
func (u ownerUploads) Put(ctx context.Context, sum string, offset int64, r io.Reader) error {
	if err := checkHash(sum); err != nil {
		return err
	}
	unlock, err := u.dir.lockUpload(ctx, sum+u.suffix, sum)
	if err != nil {
		return err
	}
	defer unlock()
	if u.suffix == "" {
		if _, err := u.dir.Touch(ctx, sum); err == nil {
			return nil
		}
	}
	return u.dir.writePartial(ctx, sum+u.suffix, sum, offset, r)
}

// Quarantine implements Store.
func (d *Dir) Quarantine(_ context.Context, sum string, read io.ReadSeekCloser) (bool, error) {
	defer read.Close() // it must stay open until its inode was compared
	if err := checkHash(sum); err != nil {
		return false, err
	}
	folder := filepath.Join(d.root, damagedDir)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return false, wrapError("quarantine", sum, err)
	}
	moved, err := d.quarantineFile(sum, read, filepath.Join(folder, sum+"."+strconv.FormatInt(time.Now().UnixNano(), 10)))
	if err == nil && moved {
		err = errors.Join(atomicfile.SyncDir(folder), atomicfile.SyncDir(filepath.Dir(d.path(sum))))
	}
	if err != nil {
		return false, wrapError("quarantine", sum, err)
	}
	return moved, nil
}

// quarantineFile renames a blob's file to path if it is the one that was read.
func (d *Dir) quarantineFile(sum string, read io.ReadSeekCloser, path string) (bool, error) {
	f, ok := read.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false, fmt.Errorf("%T is not a file of this store", read)
	}
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	d.renameMu.Lock()
	defer d.renameMu.Unlock()
	current, err := os.Stat(d.path(sum))
	if err == nil && os.SameFile(opened, current) {
		_ = read.Close() // some systems cannot rename open files
		err = os.Rename(d.path(sum), path)
		return err == nil, err
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return false, err
}

// lockUpload waits until no other Put writes the unfinished file name. The caller must call unlock.
func (d *Dir) lockUpload(ctx context.Context, name, sum string) (unlock func(), err error) {
	d.mu.Lock()
	if time.Since(d.lastSweep) >= sweepInterval {
		_ = d.sweep() // the next sweep retries
	}
	p := d.uploads[name]
	if p == nil {
		p = &uploadLock{held: make(chan struct{}, 1)}
		d.uploads[name] = p
	}
	p.refs++
	d.mu.Unlock()
	unref := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if p.refs--; p.refs == 0 {
			delete(d.uploads, name)
		}
	}
	select {
	case p.held <- struct{}{}:
		return func() { <-p.held; unref() }, nil
	case <-ctx.Done():
		unref()
		return nil, muster.Errorf(muster.Unavailable, "another upload of the blob %s is in progress: %w", sum, context.Cause(ctx))
	}
}

// resumeHash returns the hash of the content of f, which has size bytes, and seeks to its end. It reads the content unless the state
// was kept. The caller holds its upload lock.
func (d *Dir) resumeHash(f *os.File, name string, size int64) (h hash.Hash, resumed bool, err error) {
	h = sha256.New()
	if saved, ok := d.hashes.Get(name); ok && saved.size == size && size > 0 {
		if err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(saved.state); err != nil { //nolint:forcetypeassert // crypto/sha256 promises it
			return nil, false, err
		}
		_, err = f.Seek(0, io.SeekEnd)
		return h, true, err
	}
	_, err = io.Copy(h, f)
	return h, false, err
}

func hashFile(f *os.File) (string, error) {
	h := sha256.New()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	_, err := io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// saveHash keeps the state of the hash of an unfinished upload's first bytes.
func (d *Dir) saveHash(name string, size int64, h hash.Hash) {
	if state, err := h.(encoding.BinaryMarshaler).MarshalBinary(); err == nil { //nolint:forcetypeassert // likewise
		d.hashes.Put(name, hashState{size, state})
	}
}

// appendAndHash appends the bytes of r to f and h, and returns how many h has received: a failed write may leave more in f.
func appendAndHash(ctx context.Context, f *os.File, h hash.Hash, sum string, r io.Reader) (int64, error) {
	in := &ctxReader{ctx: ctx, r: r}
	hashed := &countingWriter{w: h}
	if _, err := io.Copy(io.MultiWriter(f, hashed), in); err != nil {
		if !errors.Is(err, in.err) {
			return hashed.n, wrapError("write", sum, err)
		}
		return hashed.n, muster.Errorf(muster.Unavailable, "the upload of the blob %s was interrupted: resume it: %w", sum, err)
	}
	return hashed.n, nil
}

// countingWriter counts what it passes on.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// commit names a file with the right hash, and removes any other.
func (d *Dir) commit(f *os.File, sum, got string) error {
	partial := f.Name()
	if got != sum {
		if err := errors.Join(f.Close(), os.Remove(partial)); err != nil {
			return wrapError("drop", sum, err)
		}
		return muster.Errorf(muster.Invalid, "the uploaded bytes of the blob %s have the hash %s: upload it again from the start", sum, got)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return wrapError("write", sum, err)
	}
	path := d.path(sum)
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return wrapError("write", sum, err)
	}
	if err := d.nameFile(partial, path); err != nil {
		return wrapError("write", sum, err)
	}
	// The name must survive, too, in each directory that may be new.
	for _, dir := range []string{folder, filepath.Dir(folder), d.root} {
		if err := atomicfile.SyncDir(dir); err != nil {
			return wrapError("write", sum, err)
		}
	}
	return nil
}

// nameFile gives a complete upload, which may have begun long ago, its name and time.
func (d *Dir) nameFile(partial, path string) error {
	d.renameMu.Lock()
	defer d.renameMu.Unlock()
	now := d.Now()
	if err := os.Chtimes(partial, now, now); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

// ctxReader fails when its context ends. It keeps its last error, to distinguish it from a writer's.
type ctxReader struct {
	ctx context.Context //nolint:containedctx // of one call
	r   io.Reader
	err error
}

func (c *ctxReader) Read(p []byte) (n int, err error) {
	if c.err = context.Cause(c.ctx); c.err == nil {
		n, c.err = c.r.Read(p)
	}
	return n, c.err
}

func wrapError(verb, sum string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return muster.Errorf(muster.NotFound, "there is no blob %s", sum)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return muster.Errorf(muster.StorageFull, "no space left for the blob %s: free space on its disk, then try again: %w", sum, err)
	default:
		return muster.Errorf(muster.Internal, "cannot %s the blob %s: %w", verb, sum, err)
	}
}
