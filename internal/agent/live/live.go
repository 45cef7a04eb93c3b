// Package live shows files of a task while it runs: it takes them off the worker again and again.
package live

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
	every   = 2 * time.Second        // between two looks
	rest    = 500 * time.Millisecond // how long a file must not change to count as whole
	patient = time.Minute            // with one upload; what broke off goes on after the next look
	slowest = 5                      // times that every doubles while uploads fail or have no news
	entries = 1000                   // of the folder that are looked at
	maxName = 255                    // bytes
	budget  = 1 << 30                // bytes of one task that are shown
	steps   = 8                      // after each such part of the budget looks become half as frequent
)

// turn is had by the one upload that goes on of all tasks, so that what is shown leaves the worker's way to others.
var turn = make(chan struct{}, 1)

// Source is the task whose files are shown.
type Source struct {
	Attempt muster.AttemptID
	Out     func() (*os.Root, error) // opens $MUSTER_OUT, of which the task may have made what it likes
	Upload  run.Transfer
	Tell    func(p muster.Progress)
	Say     func(line string) // writes a line into the task's log
	Log     *slog.Logger
}

// Follow shows what the task leaves in the folder live of $MUSTER_OUT until the returned func is called, also after
// ctx has ended. That one does not wait for what is being uploaded. A failure costs the task nothing and is tried again.
func Follow(ctx context.Context, from *Source) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := newShow(from)
	var loop sync.WaitGroup
	loop.Go(func() { s.run(ctx) })
	return func() {
		cancel()
		loop.Wait()
	}
}

// show follows one folder. It belongs to one goroutine.
type show struct {
	*Source

	every, rest time.Duration
	budget      int64

	have  map[string]shown // by the name in the folder
	told  bool             // the server was told in this life of the worker
	spent int64            // bytes of the budget
	idle  int              // looks in a row in which an upload failed, or had no news
	said  map[string]bool  // subjects of which the log tells
}

// shown is a file as the server has it.
type shown struct {
	info     fs.FileInfo
	artifact muster.Artifact
}

func newShow(from *Source) *show {
	return &show{Source: from, every: every, rest: rest, budget: budget, have: map[string]shown{}, said: map[string]bool{}}
}

func (s *show) run(ctx context.Context) {
	t := time.NewTimer(s.untilLook(time.Now()))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		s.look(ctx)
		t.Reset(s.untilLook(time.Now()))
	}
}

// untilLook is how long to wait for the next look: pause, or up to every less. All tasks are looked
// at together, so that the worker does not wake for each of them.
func (s *show) untilLook(now time.Time) time.Duration {
	return now.Add(s.pause()).Truncate(s.every).Sub(now)
}

// pause is how long nothing is looked at: longer the more was shown, so that what an attempt may show lasts for
// days, and while uploads fail or have no news: to read files costs the worker, too.
func (s *show) pause() time.Duration {
	return s.every << max(min(s.spent, s.budget)*steps/s.budget, int64(min(s.idle, slowest)))
}

// look shows what has changed since the look before.
func (s *show) look(ctx context.Context) {
	root, err := s.open()
	if err != nil {
		return // most tasks have no such folder
	}
	defer func() { _ = root.Close() }() // only read
	files := s.list(root)
	read, fresh, err := s.take(ctx, root, files)
	switch {
	case ctx.Err() != nil:
		return
	case fresh:
		s.idle = 0
	case read:
		s.idle++
	}
	if err != nil {
		s.Log.Debug("what a task shows is not uploaded", slog.String("attempt", s.Attempt.String()), slog.Any("error", err))
	}
	if gone := s.forget(files); !fresh && !gone {
		return
	}
	// Once the worker was restarted nothing is told before all is there again of what the server may know.
	if len(s.have) > 0 && (s.told || err == nil) {
		s.tell()
	}
}

// open opens the folder live, and no other one.
func (s *show) open() (*os.Root, error) {
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
func (s *show) list(root *os.Root) []fs.FileInfo {
	dir, err := root.Open(".")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(entries) // those that were read
	_ = dir.Close()
	var files []fs.FileInfo
	for _, name := range names {
		info, err := root.Lstat(name)
		switch {
		case err != nil || !info.Mode().IsRegular() || strings.HasPrefix(name, "."):
		case len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
			s.once("name", fmt.Sprintf("%.60q in $MUSTER_OUT/%s is not shown: its name is not plain text", name, muster.LiveDir))
		case info.Size() > muster.MaxLiveFileSize:
			s.once("size", fmt.Sprintf("%s is not shown while the task runs: it has more than %s", liveName(name), muster.Size(muster.MaxLiveFileSize)))
		default:
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	if len(files) > muster.MaxLiveFiles {
		s.once("many", fmt.Sprintf("$MUSTER_OUT/%s has more than %d files: those that changed last are shown while the task runs", muster.LiveDir, muster.MaxLiveFiles))
		files = files[:muster.MaxLiveFiles]
	}
	return files
}

// opened is a file that is shown if it does not change for a while.
type opened struct {
	*os.File

	name string
	info fs.FileInfo
}

// take takes what has changed off the worker, one file after the other, and reports whether something was read
// for that, and whether the server has something new. Whatever comes to lie in a file's place meanwhile, what was opened is taken: of a program that
// renames its files into place each is whole, however often they change. One that is being written waits for the
// next look.
func (s *show) take(ctx context.Context, root *os.Root, files []fs.FileInfo) (read, fresh bool, failure error) {
	open := s.changed(root, files)
	defer func() {
		for _, f := range open {
			_ = f.Close()
		}
	}()
	if len(open) == 0 || !s.wait(ctx) {
		return false, false, nil
	}
	for _, f := range open {
		if !f.unchanged() {
			continue
		}
		if s.spent+f.info.Size() > s.budget {
			s.once("budget", fmt.Sprintf("%s is not shown any more while the task runs: %s were", liveName(f.name), muster.Size(s.budget)))
			continue
		}
		read = true
		news, err := s.upload(ctx, f)
		if err != nil {
			failure = err
		}
		fresh = fresh || news
	}
	return read, fresh, failure
}

// changed opens those files that the server does not have.
func (s *show) changed(root *os.Root, files []fs.FileInfo) []opened {
	var open []opened
	for _, info := range files {
		name := info.Name()
		if have, ok := s.have[name]; ok && same(have.info, info) {
			continue
		}
		f, err := run.OpenIn(root, name)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				if at, ok := errors.AsType[*fs.PathError](err); ok {
					err = at.Err
				}
				s.once("open", fmt.Sprintf("%s is not shown while the task runs: %s", liveName(name), err))
			}
			continue
		}
		is, err := f.Stat()
		if err != nil || is.Size() > muster.MaxLiveFileSize {
			_ = f.Close() // it was changed meanwhile
			continue
		}
		open = append(open, opened{f, name, is})
	}
	return open
}

// wait gives those who write a file the time to show it.
func (s *show) wait(ctx context.Context) bool {
	t := time.NewTimer(s.rest)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (f opened) unchanged() bool {
	info, err := f.Stat()
	return err == nil && same(f.info, info)
}

// same reports whether a file is the one that was looked at before, and as it was.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// upload takes one file off the worker and reports whether the server has something new.
func (s *show) upload(ctx context.Context, f opened) (news bool, err error) {
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	hash, size, err := s.Upload.UploadFile(ctx, f.File)
	if err != nil {
		return false, err
	}
	news = s.have[f.name].artifact.SHA256 != hash
	if news {
		s.spent += size // also of what is not told of: the server keeps it
	}
	if size != f.info.Size() || !f.unchanged() {
		return false, nil // half of it may be of before
	}
	s.have[f.name] = shown{f.info, muster.Artifact{Name: liveName(f.name), Size: size, SHA256: hash}}
	return news, nil
}

// forget drops what is not among files any more, and reports whether there was something.
func (s *show) forget(files []fs.FileInfo) bool {
	before := len(s.have)
	maps.DeleteFunc(s.have, func(name string, _ shown) bool {
		return !slices.ContainsFunc(files, func(info fs.FileInfo) bool { return info.Name() == name })
	})
	return len(s.have) < before
}

// tell says what the server has of the task.
func (s *show) tell() {
	list := make([]muster.Artifact, 0, len(s.have))
	for _, name := range slices.Sorted(maps.Keys(s.have)) {
		list = append(list, s.have[name].artifact)
	}
	s.told = true
	s.Tell(muster.Progress{Attempt: s.Attempt, Artifacts: list})
}

// once writes a line into the task's log, if it is the first about its subject.
func (s *show) once(subject, line string) {
	if !s.said[subject] {
		s.said[subject] = true
		s.Say(line)
	}
}

// liveName is the artifact's name of a file in the folder.
func liveName(name string) string { return muster.LiveDir + "/" + name }
