package tasklog

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// Dir stores each attempt's log in a file, which the first Append creates. Several Dirs, also of several processes, may
// use a directory if only one of them at a time appends to a log.
type Dir struct {
	root      string
	withIndex bool // see OpenIndexedDir

	mu      sync.Mutex
	logs    map[muster.AttemptID]*logFile // in use or in idle
	idle    list.List                     // of *logFile: not in use, with an open file; the least recently used first
	maxIdle int                           // see KeepOpen

	dirsMu sync.RWMutex // held for writing to remove directories, for reading to create files in them
}

var _ Store = (*Dir)(nil)

// defaultIdle is how many unused files stay open for the next Append, unless KeepOpen is called.
const defaultIdle = 64

// logFile is one attempt's log while it is in memory.
type logFile struct {
	id    muster.AttemptID
	refs  int           // guarded by Dir.mu
	idle  *list.Element // in Dir.idle; guarded by Dir.mu
	owned bool          // only this Dir appends to the log

	mu     sync.Mutex
	file   *os.File // the head, or the last segment; nil until it is needed
	start  int64    // of file in the log; valid while file is open, as the following
	size   int64    // where the log ends
	synced bool     // nothing was appended since the last sync
	grown  chan struct{}
	index  *indexer // of the file's bytes; nil if it did not see all of them
	gap    *gapFile // what is known about the file of the gap; nil until it is needed
}

// OpenDir opens the directory at path, creating it if needed.
func OpenDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot create the directory for logs: %w", err)
	}
	return &Dir{root: filepath.Clean(path), logs: make(map[muster.AttemptID]*logFile), maxIdle: defaultIdle}, nil
}

// KeepOpen sets how many unused files stay open for the next Append: with as many as there are tasks that write now and then, an Append
// opens no file. It is called before the Dir is used.
func (d *Dir) KeepOpen(files int) { d.maxIdle = files }

// Close closes all unused files.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for d.idle.Len() > 0 {
		errs = append(errs, d.removeOldest())
	}
	return errors.Join(errs...)
}

// removeOldest closes the least recently used of the idle files. The lock is held.
func (d *Dir) removeOldest() error {
	l, _ := d.idle.Remove(d.idle.Front()).(*logFile)
	l.idle = nil
	delete(d.logs, l.id)
	return l.close()
}

// acquire returns the log of an attempt. The caller must release it.
func (d *Dir) acquire(a muster.AttemptID) *logFile {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.logs[a]
	if l == nil {
		l = &logFile{id: a, owned: d.withIndex}
		d.logs[a] = l
	}
	if l.idle != nil {
		d.idle.Remove(l.idle)
		l.idle = nil
	}
	l.refs++
	return l
}

// release ends the use of a log. Its file stays open for a while.
func (d *Dir) release(l *logFile) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.refs--; l.refs > 0 {
		return
	}
	l.mu.Lock() // does not block: the log is unused
	open := l.file != nil
	l.mu.Unlock()
	if !open {
		delete(d.logs, l.id)
		return
	}
	l.idle = d.idle.PushBack(l)
	if d.idle.Len() > d.maxIdle {
		_ = d.removeOldest() // nothing is buffered: Append or Sync returned errors of writing
	}
}

// close closes the file; the next use opens it again.
func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file, l.index, l.gap = nil, nil, nil
	return err
}

// path distributes the tasks of a job over directories of at most 1,000 tasks.
func (d *Dir) path(a muster.AttemptID) string {
	bucket := strconv.Itoa(a.Task.Num / 1000)
	return filepath.Join(d.jobDir(a.Task.Job), bucket, fmt.Sprintf("%d.%d.log", a.Task.Num, a.N))
}

// Append implements Store. If the disk is full, it writes what fits and returns a
// StorageFull error with the size.
func (d *Dir) Append(_ context.Context, a muster.AttemptID, offset int64, data []byte) (int64, error) {
	if offset < 0 {
		return 0, muster.Errorf(muster.Invalid, "the offset %d in the log of %s is negative", offset, a)
	}
	l := d.acquire(a)
	defer d.release(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	return d.append(l, offset, data)
}

func (d *Dir) append(l *logFile, offset int64, data []byte) (int64, error) {
	if err := d.open(l, len(data) > 0 && offset == 0); err != nil {
		return 0, err
	}
	if err := l.refreshSize(); err != nil {
		return 0, wrapError("read", l.id, err)
	}
	if offset > l.size {
		return l.size, muster.Errorf(muster.Conflict, "the log of %s has %d bytes: continue from there, not from %d", l.id, l.size, offset)
	}
	old := l.size - offset // bytes of data that the log has already
	if old >= int64(len(data)) {
		return l.size, nil
	}
	n, err := l.file.WriteAt(data[old:], l.size-l.start)
	if n > 0 {
		d.updateIndex(l, l.size-l.start, data[old:old+int64(n)])
		l.grow(l.size + int64(n))
	}
	if err != nil {
		return l.size, wrapError("write", l.id, err)
	}
	return l.size, nil
}

// grow sets the size, and wakes those who wait for it.
func (l *logFile) grow(size int64) {
	l.size, l.synced = size, false
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// open opens the file at the log's end. If the log does not exist, open creates it if create is true, and otherwise
// sets the size to 0.
func (d *Dir) open(l *logFile, create bool) error {
	if l.file != nil {
		return nil
	}
	path, start := d.path(l.id), int64(0)
	list, err := d.segments(l.id)
	if err != nil {
		return wrapError("open", l.id, err)
	}
	if len(list) > 0 {
		start = list[len(list)-1].start
		path = d.segmentPath(l.id, start)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if create && errors.Is(err, fs.ErrNotExist) {
		f, err = d.create(path)
	}
	if !create && errors.Is(err, fs.ErrNotExist) {
		l.size = 0
		return nil
	}
	if err != nil {
		return wrapError("open", l.id, err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return wrapError("open", l.id, err)
	}
	l.file, l.start, l.size, l.synced = f, start, start+info.Size(), false
	return nil
}

// refreshSize updates the size after another Dir appended to the open file.
func (l *logFile) refreshSize() error {
	if l.file == nil || l.owned {
		return nil
	}
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if size := l.start + info.Size(); size != l.size {
		l.size, l.synced = size, false
	}
	return nil
}

// create creates a file and its directories. It retries if the Dir of another process removes an empty directory
// before the file is in it.
func (d *Dir) create(path string) (f *os.File, err error) {
	d.dirsMu.RLock()
	defer d.dirsMu.RUnlock()
	for range 100 { // each retry needs another removal at the same moment
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return f, err
}

// Size implements Store.
func (d *Dir) Size(_ context.Context, a muster.AttemptID) (int64, error) {
	l := d.acquire(a)
	defer d.release(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	return d.sizeOf(l)
}

func (d *Dir) sizeOf(l *logFile) (int64, error) {
	if l.file != nil && d.withIndex { // no other Dir appends
		if err := l.refreshSize(); err != nil {
			return 0, wrapError("read", l.id, err)
		}
		return l.size, nil
	}
	list, err := d.segments(l.id)
	if err != nil {
		return 0, wrapError("read", l.id, err)
	}
	if len(list) > 0 {
		last := list[len(list)-1]
		return last.start + last.size, nil
	}
	size, err := d.headSize(l.id)
	if err != nil {
		return 0, wrapError("read", l.id, err)
	}
	return size, nil
}

// headSize returns the size of the head; 0 if it does not exist.
func (d *Dir) headSize(a muster.AttemptID) (int64, error) {
	info, err := os.Stat(d.path(a))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return info.Size(), nil
}

// Sync implements Store.
func (d *Dir) Sync(_ context.Context, a muster.AttemptID) error {
	l := d.acquire(a)
	defer d.release(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := d.open(l, false); err != nil {
		return err
	}
	if l.file == nil || l.synced {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		return wrapError("sync", a, err)
	}
	// The file's name must survive, too, in each directory that may be new.
	dirs := []string{filepath.Dir(d.path(a)), d.jobDir(a.Task.Job), filepath.Dir(d.jobDir(a.Task.Job)), d.root}
	if l.start > 0 {
		if err := d.syncTail(a); err != nil {
			return wrapError("sync", a, err)
		}
	}
	for _, dir := range dirs {
		if err := atomicfile.SyncDir(dir); err != nil {
			return wrapError("sync", a, err)
		}
	}
	l.synced = true
	return nil
}

// Wait implements Store.
func (d *Dir) Wait(ctx context.Context, a muster.AttemptID, size int64) error {
	l := d.acquire(a)
	defer d.release(l)
	for {
		l.mu.Lock()
		now, err := d.sizeOf(l)
		if err != nil || now > size {
			l.mu.Unlock()
			return err
		}
		if l.grown == nil {
			l.grown = make(chan struct{})
		}
		grown := l.grown
		l.mu.Unlock()
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// RemoveAttempt deletes the log of one attempt. It returns nil if there is none.
func (d *Dir) RemoveAttempt(_ context.Context, a muster.AttemptID) error { return d.removeAttempt(a) }

func (d *Dir) removeAttempt(a muster.AttemptID) error {
	if err := d.CloseAttempt(a); err != nil {
		return err
	}
	if err := os.RemoveAll(d.tailDir(a)); err != nil { // first: Retain finds a log by its head
		return wrapError("remove", a, err)
	}
	path := d.path(a)
	files := []string{path}
	if d.withIndex {
		files = append(files, indexPath(path))
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return wrapError("remove", a, err)
		}
	}
	d.dirsMu.Lock()
	defer d.dirsMu.Unlock()
	// Empty directories are removed, too; for others os.Remove fails.
	if os.Remove(filepath.Dir(path)) == nil && os.Remove(d.jobDir(a.Task.Job)) == nil {
		d.removeEmptyBucket(a.Task.Job)
	}
	return nil
}

// Retain deletes the logs of all attempts for which wanted returns false. The caller does not append meanwhile.
func (d *Dir) Retain(wanted func(muster.AttemptID) bool) error {
	return filepath.WalkDir(d.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return errList(err)
		}
		if entry.IsDir() && strings.HasSuffix(path, ".tail") {
			return fs.SkipDir // it belongs to a log, and may just have been removed with it
		}
		a, ok := d.parsePath(path)
		if !ok || entry.IsDir() || wanted(a) {
			return nil
		}
		return d.removeAttempt(a)
	})
}

// parsePath returns the attempt whose log has this path.
func (d *Dir) parsePath(path string) (a muster.AttemptID, ok bool) {
	job, err := muster.ParseJobID(filepath.Base(filepath.Dir(filepath.Dir(path))))
	if err != nil {
		return a, false
	}
	a.Task.Job = job
	_, err = fmt.Sscanf(filepath.Base(path), "%d.%d.log", &a.Task.Num, &a.N)
	return a, err == nil && d.path(a) == path
}

// Archive implements Store. The new names are those of the log and its tail, a dot and the time in nanoseconds.
func (d *Dir) Archive(_ context.Context, a muster.AttemptID) (bool, error) {
	path := d.path(a)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := d.CloseAttempt(a); err != nil {
		return false, wrapError("close", a, err)
	}
	suffix := "." + strconv.FormatInt(time.Now().UnixNano(), 10)
	if err := os.Rename(d.tailDir(a), d.tailDir(a)+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, wrapError("rename", a, err)
	}
	if err := os.Rename(path, path+suffix); err != nil {
		return false, wrapError("rename", a, err)
	}
	if err := atomicfile.SyncDir(filepath.Dir(path)); err != nil {
		return false, wrapError("rename", a, err)
	}
	return true, nil
}

func errList(err error) error {
	return muster.Errorf(muster.Unavailable, "cannot list the directory for logs: %w", err)
}

// CloseAttempt closes the file of one attempt's log, so that its space is freed when another Dir
// removes it. The next use opens it again.
func (d *Dir) CloseAttempt(a muster.AttemptID) error {
	return d.closeFiles(func(b muster.AttemptID) bool { return a == b })
}

func (d *Dir) closeFiles(match func(muster.AttemptID) bool) error {
	var logs []*logFile
	d.mu.Lock()
	for a, l := range d.logs {
		if match(a) {
			logs = append(logs, l)
		}
	}
	d.mu.Unlock()
	var errs []error
	for _, l := range logs {
		errs = append(errs, l.close())
	}
	return errors.Join(errs...)
}

func wrapError(verb string, a muster.AttemptID, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return muster.Errorf(muster.StorageFull, "no space left for the log of %s: free space on its disk: %w", a, err)
	}
	return muster.Errorf(muster.Internal, "cannot %s the log of %s: %w", verb, a, err)
}
