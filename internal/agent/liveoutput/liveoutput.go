// Package live shows files of a task while it runs: it takes them off the worker again and again.
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
	"unicode"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

const (
	scanInterval  = 2 * time.Second        // between two looks
	stableTime    = 500 * time.Millisecond // how long a file must not change to count as whole
	uploadTimeout = time.Minute            // with one upload; what broke off goes on after the next look
	maxBackoff    = 5                      // times that every doubles while uploads fail or have no news
	maxEntries    = 1000                   // of the folder that are looked at
	maxName       = 255                    // bytes
	maxBytes      = 1 << 30                // bytes of one task that are shown
	budgetSteps   = 8                      // after each such part of the budget looks become half as frequent
)

// uploadSlot is had by the one upload that goes on of all tasks, so that what is shown leaves the worker's way to others.
var uploadSlot = make(chan struct{}, 1)

// Source is the task whose files are shown.
type Source struct {
	Attempt muster.AttemptID
	Out     func() (*os.Root, error) // opens $MUSTER_OUT, of which the task may have made what it likes
	Upload  run.Transfer
	Report  func(p muster.Progress)
	LogLine func(line string) // writes a line into the task's log
	Log     *slog.Logger
}

// Watch shows what the task leaves in the folder live of $MUSTER_OUT until the returned func is called, also after
// ctx has ended. That one does not wait for what is being uploaded. A failure costs the task nothing and is tried again.
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

// watcher follows one folder. It belongs to one goroutine.
type watcher struct {
	*Source

	interval, stableTime time.Duration
	budget               int64

	published map[string]liveFile // by the name in the folder
	reported  bool                // the server was told in this life of the worker
	uploaded  int64               // bytes of the budget
	idle      int                 // looks in a row in which an upload failed, or had no news
	logged    map[string]bool     // subjects of which the log tells
}

// liveFile is a file as the server has it.
type liveFile struct {
	info     fs.FileInfo
	artifact muster.Artifact
}

func newWatcher(src *Source) *watcher {
	return &watcher{Source: src, interval: scanInterval, stableTime: stableTime, budget: maxBytes, published: map[string]liveFile{}, logged: map[string]bool{}}
}

func (s *watcher) run(ctx context.Context) {
	t := time.NewTimer(s.untilScan(time.Now()))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		s.scan(ctx)
		t.Reset(s.untilScan(time.Now()))
	}
}

// untilScan is how long to wait for the next look: pause, or up to every less. All tasks are looked
// at together, so that the worker does not wake for each of them.
func (s *watcher) untilScan(now time.Time) time.Duration {
	return now.Add(s.scanPause()).Truncate(s.interval).Sub(now)
}

// scanPause is how long nothing is looked at: longer the more was shown, so that what an attempt may show lasts for
// days, and while uploads fail or have no news: to read files costs the worker, too.
func (s *watcher) scanPause() time.Duration {
	return s.interval << max(min(s.uploaded, s.budget)*budgetSteps/s.budget, int64(min(s.idle, maxBackoff)))
}

// scan shows what has changed since the look before.
func (s *watcher) scan(ctx context.Context) {
	root, err := s.open()
	if err != nil {
		return // most tasks have no such folder
	}
	defer func() { _ = root.Close() }() // only read
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
		s.Log.Debug("what a task shows is not uploaded", slog.String("attempt", s.Attempt.String()), slog.Any("error", err))
	}
	if removed := s.dropMissing(files); !hasNew && !removed {
		return
	}
	// Once the worker was restarted nothing is told before all is there again of what the server may know.
	if len(s.published) > 0 && (s.reported || err == nil) {
		s.report()
	}
}

// open opens the folder live, and no other one.
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

// list returns the files that can be shown, those that changed last first.
func (s *watcher) list(root *os.Root) []fs.FileInfo {
	dir, err := root.Open(".")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(maxEntries) // those that were read
	_ = dir.Close()
	var files []fs.FileInfo
	for _, name := range names {
		info, err := root.Lstat(name)
		switch {
		case err != nil || !info.Mode().IsRegular() || strings.HasPrefix(name, "."):
		case len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
			s.logOnce("name", fmt.Sprintf("%.60q in $MUSTER_OUT/%s is not shown: its name is not plain text", name, muster.LiveDir))
		case info.Size() > muster.MaxLiveFileSize:
			s.logOnce("size", fmt.Sprintf("%s is not shown while the task runs: it has more than %s", liveName(name), muster.Size(muster.MaxLiveFileSize)))
		default:
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	if len(files) > muster.MaxLiveFiles {
		s.logOnce("many", fmt.Sprintf("$MUSTER_OUT/%s has more than %d files: those that changed last are shown while the task runs", muster.LiveDir, muster.MaxLiveFiles))
		files = files[:muster.MaxLiveFiles]
	}
	return files
}

// openFile is a file that is shown if it does not change for a while.
type openFile struct {
	*os.File

	name string
	info fs.FileInfo
}

// uploadChanged takes what has changed off the worker, one file after the other, and reports whether something was read
// for that, and whether the server has something new. Whatever comes to lie in a file's place meanwhile, what was opened is taken: of a program that
// renames its files into place each is whole, however often they change. One that is being written waits for the
// next look.
func (s *watcher) uploadChanged(ctx context.Context, root *os.Root, files []fs.FileInfo) (read, hasNew bool, failure error) {
	open := s.openChanged(root, files)
	defer func() {
		for _, f := range open {
			_ = f.Close()
		}
	}()
	if len(open) == 0 || !s.waitStable(ctx) {
		return false, false, nil
	}
	for _, f := range open {
		if !f.unchanged() {
			continue
		}
		if s.uploaded+f.info.Size() > s.budget {
			s.logOnce("budget", fmt.Sprintf("%s is not shown any more while the task runs: %s were", liveName(f.name), muster.Size(s.budget)))
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

// openChanged opens those files that the server does not have.
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
			_ = f.Close() // it was changed meanwhile
			continue
		}
		open = append(open, openFile{f, name, stat})
	}
	return open
}

// waitStable gives those who write a file the time to show it.
func (s *watcher) waitStable(ctx context.Context) bool {
	t := time.NewTimer(s.stableTime)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (f openFile) unchanged() bool {
	info, err := f.Stat()
	return err == nil && sameFile(f.info, info)
}

// sameFile reports whether a file is the one that was looked at before, and as it was.
func sameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// upload takes one file off the worker and reports whether the server has something new.
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
		s.uploaded += size // also of what is not told of: the server keeps it
	}
	if size != f.info.Size() || !f.unchanged() {
		return false, nil // half of it may be of before
	}
	s.published[f.name] = liveFile{f.info, muster.Artifact{Name: liveName(f.name), Size: size, SHA256: hash}}
	return isNew, nil
}

// dropMissing drops what is not among files any more, and reports whether there was something.
func (s *watcher) dropMissing(files []fs.FileInfo) bool {
	before := len(s.published)
	maps.DeleteFunc(s.published, func(name string, _ liveFile) bool {
		return !slices.ContainsFunc(files, func(info fs.FileInfo) bool { return info.Name() == name })
	})
	return len(s.published) < before
}

// report says what the server has of the task.
func (s *watcher) report() {
	list := make([]muster.Artifact, 0, len(s.published))
	for _, name := range slices.Sorted(maps.Keys(s.published)) {
		list = append(list, s.published[name].artifact)
	}
	s.reported = true
	s.Report(muster.Progress{Attempt: s.Attempt, Artifacts: list})
}

// logOnce writes a line into the task's log, if it is the first about its subject.
func (s *watcher) logOnce(subject, line string) {
	if !s.logged[subject] {
		s.logged[subject] = true
		s.LogLine(line)
	}
}

// liveName is the artifact's name of a file in the folder.
func liveName(name string) string { return muster.LiveDir + "/" + name }
