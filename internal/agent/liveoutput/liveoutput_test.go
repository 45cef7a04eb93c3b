//go:build unix

package liveoutput

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
)

// fakeServer receives uploads and reports.
type fakeServer struct {
	t        *testing.T // of the bubble
	out      string
	fail     error
	block    bool
	onUpload func() error // what the task does while a file is uploaded
	uploads  []string
	reports  []string // name=hash …, as they are shown
	logged   []string
}

func (v *fakeServer) UploadFile(ctx context.Context, f *os.File) (string, int64, error) {
	if v.block {
		<-ctx.Done()
		return "", 0, ctx.Err()
	}
	if v.fail != nil {
		return "", 0, v.fail
	}
	if v.onUpload != nil {
		if err := v.onUpload(); err != nil {
			return "", 0, err
		}
	}
	b, err := io.ReadAll(f)
	v.uploads = append(v.uploads, string(b))
	return hash(string(b)), int64(len(b)), err
}

func (v *fakeServer) source() *Source {
	return &Source{
		Out: func() (*os.Root, error) { return os.OpenRoot(v.out) }, Upload: v, Log: slog.New(slog.DiscardHandler),
		Report: func(p muster.Progress) {
			var list []string
			for _, a := range p.Artifacts {
				list = append(list, a.Name+"="+a.SHA256)
			}
			v.reports = append(v.reports, strings.Join(list, " "))
		},
		LogLine: func(line string) { v.logged = append(v.logged, line) },
	}
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:2])
}

// list returns the report of pairs of name and content.
func list(pairs ...string) string {
	var l []string
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, "live/"+pairs[i]+"="+hash(pairs[i+1]))
	}
	return strings.Join(l, " ")
}

// withWatcher runs f with a task that has a folder live.
func withWatcher(t *testing.T, f func(v *fakeServer, s *watcher)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := &fakeServer{t: t, out: t.TempDir()}
		if err := os.Mkdir(filepath.Join(v.out, muster.LiveDir), 0o700); err != nil {
			t.Fatal(err)
		}
		f(v, newWatcher(v.source()))
	})
}

// scan scans once, and checks the last report and the number of uploads since the start.
func scan(t *testing.T, v *fakeServer, s *watcher, desc string, uploads int, want ...string) {
	t.Helper()
	s.scan(t.Context())
	if len(v.uploads) != uploads || strings.Join(v.reports, "; ") != strings.Join(want, "; ") {
		t.Fatalf("%s: uploaded %q, reported %q, want %d and %q", desc, v.uploads, v.reports, uploads, want)
	}
	v.reports = nil
}

// age makes the files differ in when they were changed, whatever the file system's clock can tell apart.
func (v *fakeServer) write(t *testing.T, name, text string, age int) {
	t.Helper()
	path := filepath.Join(v.out, muster.LiveDir, name)
	at := time.Date(2026, 1, 1, 12, 0, -age, 0, time.UTC)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)); err != nil {
		t.Fatal(err)
	}
}

func TestUploadsChangedFiles(t *testing.T) {
	withWatcher(t, func(v *fakeServer, s *watcher) {
		t := v.t
		scan(t, v, s, "nothing is there", 0)
		v.write(t, "a.png", "one", 9)
		v.write(t, "b.csv", "1,2", 8)
		scan(t, v, s, "both are new", 2, list("a.png", "one", "b.csv", "1,2"))
		scan(t, v, s, "nothing changed", 2)
		v.write(t, "a.png", "two", 7)
		scan(t, v, s, "one changed", 3, list("a.png", "two", "b.csv", "1,2"))
		v.write(t, "a.png", "two", 6)
		scan(t, v, s, "it was written again as it was", 4)
		if err := os.Remove(filepath.Join(v.out, muster.LiveDir, "a.png")); err != nil {
			t.Fatal(err)
		}
		scan(t, v, s, "one is removed", 4, list("b.csv", "1,2"))
		if err := os.RemoveAll(filepath.Join(v.out, muster.LiveDir)); err != nil {
			t.Fatal(err)
		}
		scan(t, v, s, "the folder is removed, and the last report stays", 4)
	})
}

// A file that is written in place is uploaded when it no longer changes; a renamed file is uploaded completely, also while the next
// one takes its place.
func TestIncompleteFilesAreNotUploaded(t *testing.T) {
	withWatcher(t, func(v *fakeServer, s *watcher) {
		t := v.t
		dir := filepath.Join(v.out, muster.LiveDir)
		meanwhile := func(change func() error) {
			go func() {
				time.Sleep(stableTime / 2)
				if err := change(); err != nil {
					t.Error(err)
				}
			}()
		}
		v.write(t, "curve", "ha", 9)
		meanwhile(func() error { return os.WriteFile(filepath.Join(dir, "curve"), []byte("whole"), 0o600) })
		scan(t, v, s, "it is being written", 0)
		scan(t, v, s, "it rests", 1, list("curve", "whole"))
		v.write(t, "curve", "second", 7)
		v.write(t, ".curve", "third", 6)
		meanwhile(func() error { return os.Rename(filepath.Join(dir, ".curve"), filepath.Join(dir, "curve")) })
		scan(t, v, s, "another one takes its place", 2, list("curve", "second"))
		scan(t, v, s, "and that one is shown next", 3, list("curve", "third"))
	})
}

func TestIgnoredFiles(t *testing.T) {
	for _, c := range []struct {
		name    string
		make    func(live, secrets string) error
		wantLog string // "" for nothing
	}{
		{"a link to a file of the worker's", func(live, secrets string) error { return os.Symlink(secrets+"/key", live+"/x") }, ""},
		{"a link for the folder", func(live, secrets string) error {
			return errors.Join(os.Remove(live), os.Symlink(secrets, live))
		}, ""},
		{"a link to another folder of the task's", func(live, _ string) error {
			return errors.Join(os.Remove(live), os.Mkdir(live+"-x", 0o700), os.WriteFile(live+"-x/x", []byte("x"), 0o600), os.Symlink(filepath.Base(live)+"-x", live))
		}, ""},
		{"a pipe, at which one would wait", func(live, _ string) error { return unix.Mkfifo(live+"/x", 0o600) }, ""},
		{"a folder", func(live, _ string) error { return os.Mkdir(live+"/x", 0o700) }, ""},
		{"a file for the folder", func(live, _ string) error {
			return errors.Join(os.Remove(live), os.WriteFile(live, []byte("x"), 0o600))
		}, ""},
		{"what is on its way to its name", func(live, _ string) error { return os.WriteFile(live+"/.x", []byte("x"), 0o600) }, ""},
		{"a name with a control character", func(live, _ string) error { return os.WriteFile(live+"/a\nb", []byte("x"), 0o600) }, "has the control or format character"},
		{"a big file", func(live, _ string) error {
			return errors.Join(os.WriteFile(live+"/x", nil, 0o600), os.Truncate(live+"/x", muster.MaxLiveFileSize+1))
		}, "live/x is not shown while the task runs: it is larger than 16MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			withWatcher(t, func(v *fakeServer, s *watcher) {
				t := v.t
				secrets := t.TempDir()
				if err := errors.Join(os.WriteFile(secrets+"/key", []byte("secret"), 0o600), c.make(filepath.Join(v.out, muster.LiveDir), secrets)); err != nil {
					t.Fatal(err)
				}
				scan(t, v, s, "first", 0)
				scan(t, v, s, "again", 0)
				if logged := strings.Join(v.logged, "\n"); len(v.logged) > 1 || !strings.Contains(logged, c.wantLog) || (logged == "") != (c.wantLog == "") {
					t.Errorf("it logged %q", v.logged)
				}
			})
		})
	}
}

func TestNewestFilesAreUploaded(t *testing.T) {
	withWatcher(t, func(v *fakeServer, s *watcher) {
		t := v.t
		var last []string
		for i := range muster.MaxLiveFiles + 2 {
			name := fmt.Sprintf("step-%02d", i)
			v.write(t, name, name, 100-i)
			if i >= 2 {
				last = append(last, name, name)
			}
		}
		scan(t, v, s, "two too many", muster.MaxLiveFiles, list(last...))
		v.write(t, "step-99", "step-99", 0)
		scan(t, v, s, "a newer one", muster.MaxLiveFiles+1, list(append(last[2:], "step-99", "step-99")...))
		if len(v.logged) != 1 || !strings.Contains(v.logged[0], "more than 16 files") {
			t.Errorf("it logged %q", v.logged)
		}
	})
}

func TestFailedUploadsAreRetriedWithBackoff(t *testing.T) {
	withWatcher(t, func(v *fakeServer, s *watcher) {
		t := v.t
		v.write(t, "a", "one", 9)
		v.fail = errors.New("the server's disk is full")
		for range 2 * maxBackoff {
			scan(t, v, s, "it fails", 0)
		}
		if p := s.scanPause(); p != scanInterval<<maxBackoff || len(v.logged) > 0 {
			t.Errorf("after failures it waits %s and logs %q", p, v.logged)
		}
		v.fail = nil
		scan(t, v, s, "it works", 1, list("a", "one"))
		if p := s.scanPause(); p != scanInterval {
			t.Errorf("it waits %s", p)
		}
	})
}

func TestTouchedFilesAreReadLessOften(t *testing.T) {
	withWatcher(t, func(v *fakeServer, s *watcher) {
		t := v.t
		v.write(t, "a", "one", 9)
		scan(t, v, s, "it is new", 1, list("a", "one"))
		for i := range 2 * maxBackoff {
			v.write(t, "a", "one", 8-i)
			scan(t, v, s, "it is as before", 2+i)
		}
		if p := s.scanPause(); p != scanInterval<<maxBackoff {
			t.Errorf("after a useless read it waits %s", p)
		}
		v.write(t, "a", "two", 100)
		scan(t, v, s, "it is new again", 2+2*maxBackoff, list("a", "two"))
		if p := s.scanPause(); p != scanInterval {
			t.Errorf("it waits %s", p)
		}
	})
}

// Files of all tasks are uploaded one after the other, so that results are not delayed.
func TestUploadsAreFairBetweenTasks(t *testing.T) {
	withWatcher(t, func(v *fakeServer, s *watcher) {
		t := v.t
		v.write(t, "a", "one", 9)
		root, err := s.open()
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f := s.openChanged(root, s.list(root))[0]
		defer f.Close()
		uploadSlot <- struct{}{}
		if _, err := s.upload(ctx, f); !errors.Is(err, context.Canceled) || len(v.uploads) != 0 {
			t.Errorf("out of turn: %v, uploaded was %q", err, v.uploads)
		}
		<-uploadSlot
		if isNew, err := s.upload(t.Context(), f); !isNew || err != nil || len(v.uploads) != 1 {
			t.Errorf("in turn: %t, %v, uploaded was %q", isNew, err, v.uploads)
		}
	})
}

func TestFilesOfATaskAreLimited(t *testing.T) {
	withWatcher(t, func(v *fakeServer, s *watcher) {
		t := v.t
		s.budget = 80
		v.write(t, "a", strings.Repeat("x", 39), 9)
		scan(t, v, s, "half of it", 1, list("a", strings.Repeat("x", 39)))
		if p := s.scanPause(); p != scanInterval<<3 {
			t.Errorf("it waits %s", p)
		}
		v.write(t, "a", strings.Repeat("y", 41), 8)
		scan(t, v, s, "all of it", 2, list("a", strings.Repeat("y", 41)))
		v.write(t, "a", "z", 7)
		scan(t, v, s, "no more", 2)
		scan(t, v, s, "no more", 2)
		if len(v.logged) != 1 || !strings.Contains(v.logged[0], "no longer updated") {
			t.Errorf("it logged %q", v.logged)
		}
	})
}

// A file that changes during its upload is not reported, but counts: the server keeps it.
func TestFileThatChangesDuringUpload(t *testing.T) {
	withWatcher(t, func(v *fakeServer, s *watcher) {
		t := v.t
		s.budget = 100
		path := filepath.Join(v.out, muster.LiveDir, "a")
		v.write(t, "a", "small", 9)
		v.onUpload = func() error { return os.WriteFile(path, []byte(strings.Repeat("x", 1000)), 0o600) }
		scan(t, v, s, "it grows on its way", 1)
		v.onUpload = nil
		v.write(t, "a", "last", 8)
		scan(t, v, s, "no more", 1)
		if p := s.scanPause(); p != scanInterval<<budgetSteps || len(v.logged) != 1 {
			t.Errorf("it waits %s and logs %q", p, v.logged)
		}
	})
}

// A task that ends while a file is on its way waits for nothing, and one without files costs next to nothing.
func TestEndDoesNotWaitForUploads(t *testing.T) {
	withWatcher(t, func(v *fakeServer, _ *watcher) {
		t := v.t
		v.write(t, "a", "one", 9)
		v.block = true
		stop := Watch(t.Context(), v.source())
		time.Sleep(scanInterval + stableTime)
		synctest.Wait()
		began := time.Now()
		stop()
		if d := time.Since(began); d != 0 || len(v.reports) > 0 {
			t.Errorf("it took %s and reported %q", d, v.reports)
		}
	})
}
