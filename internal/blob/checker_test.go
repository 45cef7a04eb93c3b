package blob_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
)

// memStore is a store in memory whose files take a while to read.
type memStore struct {
	blob.Store

	mu       sync.Mutex
	files    map[string]string
	reads    int
	readTime time.Duration
}

func (d *memStore) Stat(_ context.Context, sum string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text, ok := d.files[sum]
	if !ok {
		return 0, muster.Errorf(muster.NotFound, "there is no blob %s", sum)
	}
	return int64(len(text)), nil
}

func (d *memStore) Open(context.Context, string) (io.ReadSeekCloser, error) { panic("see open") }

func (d *memStore) Quarantine(_ context.Context, sum string, _ io.ReadSeekCloser) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, sum)
	return true, nil
}

// slowStore delivers the files.
type slowStore struct{ *memStore }

type slowFile struct {
	*strings.Reader

	readTime time.Duration
}

func (f *slowFile) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		time.Sleep(f.readTime) // of the bubble
	}
	return n, err
}

func (f *slowFile) WriteTo(io.Writer) (int64, error) { panic("it is read") }
func (f *slowFile) Close() error                     { return nil }

func (d slowStore) Open(_ context.Context, sum string) (io.ReadSeekCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	return &slowFile{strings.NewReader(d.files[sum]), d.readTime}, nil
}

// A true report is confirmed once; false reports make the checker read at most a tenth of the time.
func TestChecksAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &memStore{files: map[string]string{}, readTime: 5 * time.Second}
		name := func(text string) string {
			sum := sha256.Sum256([]byte(text))
			return hex.EncodeToString(sum[:])
		}
		for i := range 1000 {
			d.files[name(strconv.Itoa(i))] = strconv.Itoa(i)
		}
		c := blob.NewChecker(slowStore{d}, slog.New(slog.DiscardHandler))
		start := time.Now()
		for time.Since(start) < 10*time.Minute { // false reports of all blobs
			for i := range 1000 {
				if v, err := c.Check(t.Context(), name(strconv.Itoa(i)), "liar"); v == blob.Damaged || err != nil {
					t.Fatalf("an intact file is %s, %v", v, err)
				}
			}
			time.Sleep(time.Second)
		}
		if busy := time.Duration(d.reads) * d.readTime; busy > time.Since(start)/10+d.readTime {
			t.Errorf("in %s the disk was read for %s", time.Since(start), busy)
		}
		// Reports of others are checked meanwhile.
		damaged := name("2000")
		d.files[damaged] = "2000 and more"
		before := d.reads
		if v, err := c.Check(t.Context(), damaged, "honest"); v != blob.Damaged || err != nil {
			t.Errorf("a damaged file is %s, %v", v, err)
		}
		if _, err := c.Check(t.Context(), damaged, "honest"); muster.CodeOf(err) != muster.NotFound {
			t.Errorf("after the quarantine: %v", err)
		}
		d.files[damaged] = "2000"
		for range 3 {
			if v, err := c.Check(t.Context(), damaged, "honest"); v != blob.Intact || err != nil {
				t.Errorf("after a new upload it is %s, %v", v, err)
			}
		}
		if d.reads != before+2 {
			t.Errorf("it was read %d times", d.reads-before)
		}
		// Many at once wait for one, and no more than some.
		before = d.reads
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() { _, _ = c.Check(t.Context(), name(strconv.Itoa(500+i)), "asker "+strconv.Itoa(i)) })
		}
		all.Wait()
		if d.reads-before > 16 {
			t.Errorf("%d files were read for many at once", d.reads-before)
		}
	})
}

// faultyStore is a store whose files are read with trouble.
type faultyStore struct {
	blob.Store

	opens int
	open  error                                   // of the next Opens
	read  func(f *os.File, b []byte) (int, error) // in place of f.Read, if not nil
}

type faultyFile struct {
	*os.File

	read func(f *os.File, b []byte) (int, error)
}

func (f *faultyFile) WriteTo(io.Writer) (int64, error) { panic("it is read") }

func (f *faultyFile) Read(b []byte) (int, error) {
	if f.read != nil {
		return f.read(f.File, b)
	}
	return f.File.Read(b)
}

func (s *faultyStore) Open(ctx context.Context, sum string) (io.ReadSeekCloser, error) {
	s.opens++
	if s.open != nil {
		return nil, s.open
	}
	f, err := s.Store.Open(ctx, sum)
	if err != nil {
		return nil, err
	}
	file, ok := f.(*os.File)
	if !ok {
		return nil, errors.New("not a file")
	}
	return &faultyFile{file, s.read}, nil
}

// newFaultyStore returns a store with a blob, the blob's hash, and the path of its file.
func newFaultyStore(t *testing.T, text string) (s *faultyStore, sum, path string) {
	t.Helper()
	root := t.TempDir()
	dir, err := blob.OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.Sum256([]byte(text))
	sum = hex.EncodeToString(h[:])
	if err := dir.Put(t.Context(), sum, 0, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return &faultyStore{Store: dir}, sum, filepath.Join(root, sum[:2], sum[2:4], sum)
}

// A read error is not damage: the file stays, is read again a minute later, and is suspect until it was read
// or replaced.
func TestReadErrorsKeepTheFile(t *testing.T) {
	for name, inject := range map[string]func(*faultyStore){
		"EIO at open":    func(s *faultyStore) { s.open = syscall.EIO },
		"EMFILE at open": func(s *faultyStore) { s.open = syscall.EMFILE },
		"EIO":            func(s *faultyStore) { s.read = func(*os.File, []byte) (int, error) { return 0, syscall.EIO } },
		"EIO after some bytes": func(s *faultyStore) {
			s.read = func(f *os.File, b []byte) (int, error) {
				if n, err := f.Read(b[:1]); err == nil && b[0] != 'o' {
					return n, nil
				}
				return 0, syscall.EIO
			}
		},
		"ENOMEM": func(s *faultyStore) { s.read = func(*os.File, []byte) (int, error) { return 0, syscall.ENOMEM } },
		"timeout": func(s *faultyStore) {
			s.read = func(*os.File, []byte) (int, error) { return 0, os.ErrDeadlineExceeded }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, sum, path := newFaultyStore(t, "some bytes")
				c := blob.NewChecker(s, slog.New(slog.DiscardHandler))
				inject(s)
				for i := range 10 {
					v, err := c.Check(t.Context(), sum, "")
					if v != blob.Unreadable || err != nil {
						t.Fatalf("check %d: %s, %v", i, v, err)
					}
					time.Sleep(20 * time.Second)
				}
				if s.opens > 4 { // in 200 seconds
					t.Errorf("it was opened %d times", s.opens)
				}
				if _, err := os.Stat(path); err != nil || !c.Suspect(sum) {
					t.Errorf("suspect: %t; the file: %v", c.Suspect(sum), err)
				}
				s.open, s.read = nil, nil
				time.Sleep(time.Minute)
				if v, err := c.Check(t.Context(), sum, ""); v != blob.Intact || err != nil || c.Suspect(sum) {
					t.Errorf("once it can be read it is %s, %v, suspect: %t", v, err, c.Suspect(sum))
				}
				// A read outside of a check makes it suspect, too.
				c.ReadFailed(sum, syscall.EIO)
				if !c.Suspect(sum) {
					t.Error("a failed read is not recorded")
				}
				if v, err := c.Check(t.Context(), sum, ""); v != blob.Intact || err != nil || c.Suspect(sum) {
					t.Errorf("then it is %s, %v, suspect: %t", v, err, c.Suspect(sum))
				}
			})
		})
	}
}

// A file that is uploaded while a check reads a damaged one is not quarantined.
func TestUploadDuringACheckIsKept(t *testing.T) {
	s, sum, path := newFaultyStore(t, "some bytes")
	if err := os.WriteFile(path, []byte("some byteZ"), 0o600); err != nil {
		t.Fatal(err)
	}
	uploads := 0
	s.read = func(f *os.File, b []byte) (int, error) {
		n, err := f.Read(b)
		if err == io.EOF && uploads == 0 {
			uploads++
			if err := s.ForOwner("one").Put(t.Context(), sum, 0, strings.NewReader("some bytes")); err != nil {
				t.Error(err)
			}
		}
		return n, err
	}
	c := blob.NewChecker(s, slog.New(slog.DiscardHandler))
	if v, err := c.Check(t.Context(), sum, ""); v != blob.Intact || err != nil || uploads != 1 {
		t.Errorf("after %d uploads it is %s, %v", uploads, v, err)
	}
	if b, err := os.ReadFile(path); string(b) != "some bytes" {
		t.Errorf("the file has %q, %v", b, err)
	}
}
