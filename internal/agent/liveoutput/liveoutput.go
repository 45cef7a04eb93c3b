// Package liveoutput uploads files of a running task periodically, so that clients can show them.
package liveoutput

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/backoff"
)

const (
	scanInterval  = 2 * time.Second
	stableTime    = 500 * time.Millisecond // a file without changes for this time counts as complete
	uploadTimeout = time.Minute            // for one upload; the next scan resumes it
	maxBackoff    = 5                      // how often the interval doubles while uploads fail or bring nothing new
	maxEntries    = 1000                   // entries of the folder that are read
	maxBytes      = 1 << 30                // budget of uploaded bytes for one task
	budgetSteps   = 8                      // the interval doubles after each of this many parts of the budget
)

// uploadSlot limits the worker to one upload at a time, for all tasks, so that most bandwidth remains for other transfers.
var uploadSlot = make(chan struct{}, 1)

// Uploader uploads a regular file, unless the server has its bytes already. The file is at its start.
type Uploader interface {
	UploadFile(ctx context.Context, f *os.File) (sha256 string, size int64, err error)
}

// Source is the task whose files are uploaded.
type Source struct {
	Attempt muster.AttemptID
	Out     func() (*os.Root, error) // opens $MUSTER_OUT, whose content is not trusted
	Upload  Uploader
	Report  func(p muster.Progress)
	LogLine func(line string) // writes a line into the task's log
	Log     *slog.Logger
}

// Watch uploads the files in the folder live of $MUSTER_OUT until stop is called, also after ctx has ended. stop cancels a running
// upload. Failures do not affect the task and are retried.
func Watch(ctx context.Context, src *Source) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := newWatcher(src)
	var loop sync.WaitGroup
	loop.Go(func() { s.run(ctx) })
	return func() {
		cancel()
		loop.Wait()
	}
}

// watcher uploads one folder. It belongs to one goroutine.
type watcher struct {
	*Source

	interval, stableTime time.Duration
	budget               int64

	published map[string]liveFile // by name in the folder
	reported  bool                // since the start of the worker
	uploaded  int64               // used bytes of the budget
	idle      int                 // consecutive scans whose uploads failed or brought nothing new
	logged    map[string]bool     // subjects that are in the log
}

// liveFile is an uploaded file.
type liveFile struct {
	info     fs.FileInfo
	artifact muster.Artifact
}

func newWatcher(src *Source) *watcher {
	return &watcher{Source: src, interval: scanInterval, stableTime: stableTime, budget: maxBytes, published: map[string]liveFile{}, logged: map[string]bool{}}
}

func (s *watcher) run(ctx context.Context) {
	for backoff.Sleep(ctx, s.untilScan(time.Now())) == nil {
		s.scan(ctx)
	}
}

// untilScan returns the time until the next scan: scanPause, or up to interval less. All tasks are scanned at the same time, so that the
// worker does not wake up for each of them.
func (s *watcher) untilScan(now time.Time) time.Duration {
	return now.Add(s.scanPause()).Truncate(s.interval).Sub(now)
}

// scanPause returns the pause between scans. It grows with the used budget, so that the budget lasts for days, and while uploads fail or
// bring nothing new, to save disk reads.
func (s *watcher) scanPause() time.Duration {
	return s.interval << max(min(s.uploaded, s.budget)*budgetSteps/s.budget, int64(min(s.idle, maxBackoff)))
}

// scan uploads what has changed since the last scan, and reports it.
func (s *watcher) scan(ctx context.Context) {
	root, err := s.open()
	if err != nil {
		return // most tasks have no such folder
	}
	defer func() { _ = root.Close() }()
	files := s.list(root)
	read, hasNew, err := s.uploadChanged(ctx, root, files)
	switch {
	case ctx.Err() != nil:
		return
	case hasNew:
		s.idle = 0
	case read:
		s.idle++
	}
	if err != nil {
		s.Log.Debug("uploading live output failed", slog.String("attempt", s.Attempt.String()), slog.Any("error", err))
	}
	if removed := s.dropMissing(files); !hasNew && !removed {
		return
	}
	// After a restart of the worker, the first report must be complete: it replaces the server's list.
	if len(s.published) > 0 && (s.reported || err == nil) {
		s.report()
	}
}

// open opens the folder live. It does not follow a link.
func (s *watcher) open() (*os.Root, error) {
	out, err := s.Out()
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	info, err := out.Lstat(muster.LiveDir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fs.ErrInvalid
	}
	return out.OpenRoot(muster.LiveDir)
}

// list returns the files to upload, most recently changed first.
func (s *watcher) list(root *os.Root) []fs.FileInfo {
	dir, err := root.Open(".")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(maxEntries) // after an error: those that were read
	_ = dir.Close()
	var files []fs.FileInfo
	for _, name := range names {
		info, err := root.Lstat(name)
		switch {
		case err != nil || !info.Mode().IsRegular() || strings.HasPrefix(name, "."):
		case muster.CheckArtifactName(liveName(name)) != nil:
			s.logOnce("name", fmt.Sprintf("%.60q in $MUSTER_OUT/%s is not shown: its name %s", name, muster.LiveDir, muster.CheckArtifactName(liveName(name))))
		case info.Size() > muster.MaxLiveFileSize:
			s.logOnce("size", fmt.Sprintf("%s is not shown while the task runs: it is larger than %s", liveName(name), muster.Size(muster.MaxLiveFileSize)))
		default:
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	if len(files) > muster.MaxLiveFiles {
		s.logOnce("many", fmt.Sprintf("$MUSTER_OUT/%s has more than %d files: only the most recently changed ones are shown while the task runs", muster.LiveDir, muster.MaxLiveFiles))
		files = files[:muster.MaxLiveFiles]
	}
	return files
}

// openFile is a file to upload if it does not change for stableTime.
type openFile struct {
	*os.File

	name string
	info fs.FileInfo
}

// uploadChanged uploads the changed files one after another. It reports whether it read a file and whether the server got new content.
// It uploads the file that it opened even if the program renames another one to the same path, so that each upload is complete. A
// file that is being written waits for the next scan.
func (s *watcher) uploadChanged(ctx context.Context, root *os.Root, files []fs.FileInfo) (read, hasNew bool, failure error) {
	open := s.openChanged(root, files)
	defer func() {
		for _, f := range open {
			_ = f.Close()
		}
	}()
	if len(open) == 0 || backoff.Sleep(ctx, s.stableTime) != nil {
		return false, false, nil
	}
	for _, f := range open {
		if !f.unchanged() {
			continue
		}
		if s.uploaded+f.info.Size() > s.budget {
			s.logOnce("budget", fmt.Sprintf("%s is no longer updated while the task runs: the limit of %s is reached", liveName(f.name), muster.Size(s.budget)))
			continue
		}
		read = true
		isNew, err := s.upload(ctx, f)
		if err != nil {
			failure = err
		}
		hasNew = hasNew || isNew
	}
	return read, hasNew, failure
}

// openChanged opens the files that have changed since their upload.
func (s *watcher) openChanged(root *os.Root, files []fs.FileInfo) []openFile {
	var open []openFile
	for _, info := range files {
		name := info.Name()
		if have, ok := s.published[name]; ok && sameFile(have.info, info) {
			continue
		}
		f, err := run.OpenRegularIn(root, name)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
					err = pathErr.Err
				}
				s.logOnce("open", fmt.Sprintf("%s is not shown while the task runs: %s", liveName(name), err))
			}
			continue
		}
		stat, err := f.Stat()
		if err != nil || stat.Size() > muster.MaxLiveFileSize {
			_ = f.Close() // it changed meanwhile
			continue
		}
		open = append(open, openFile{f, name, stat})
	}
	return open
}

func (f openFile) unchanged() bool {
	info, err := f.Stat()
	return err == nil && sameFile(f.info, info)
}

// sameFile reports whether two readings are of the same unchanged file.
func sameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// upload uploads one file and reports whether its content is new to the server.
func (s *watcher) upload(ctx context.Context, f openFile) (isNew bool, err error) {
	select {
	case uploadSlot <- struct{}{}:
		defer func() { <-uploadSlot }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	hash, size, err := s.Upload.UploadFile(ctx, f.File)
	if err != nil {
		return false, err
	}
	isNew = s.published[f.name].artifact.SHA256 != hash
	if isNew {
		s.uploaded += size // even if it is not reported: the server keeps it
	}
	if size != f.info.Size() || !f.unchanged() {
		return false, nil // it may be a mix of two versions
	}
	s.published[f.name] = liveFile{f.info, muster.Artifact{Name: liveName(f.name), Size: size, SHA256: hash}}
	return isNew, nil
}

// dropMissing drops published files that no longer exist, and reports whether there were any.
func (s *watcher) dropMissing(files []fs.FileInfo) bool {
	before := len(s.published)
	maps.DeleteFunc(s.published, func(name string, _ liveFile) bool {
		return !slices.ContainsFunc(files, func(info fs.FileInfo) bool { return info.Name() == name })
	})
	return len(s.published) < before
}

// report reports the list of published files.
func (s *watcher) report() {
	list := make([]muster.Artifact, 0, len(s.published))
	for _, name := range slices.Sorted(maps.Keys(s.published)) {
		list = append(list, s.published[name].artifact)
	}
	s.reported = true
	s.Report(muster.Progress{Attempt: s.Attempt, Artifacts: list})
}

// logOnce writes a line to the task's log, once for each subject.
func (s *watcher) logOnce(subject, line string) {
	if !s.logged[subject] {
		s.logged[subject] = true
		s.LogLine(line)
	}
}

// liveName returns the artifact name of a file in the folder.
func liveName(name string) string { return muster.LiveDir + "/" + name }
