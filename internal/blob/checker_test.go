package blob_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
)

// disk is a store in memory whose files take a while to read.
type disk struct {
	blob.Store

	mu    sync.Mutex
	files map[string]string
	reads int
	takes time.Duration
}

func (d *disk) Stat(_ context.Context, sum string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text, ok := d.files[sum]
	if !ok {
		return 0, muster.Errorf(muster.NotFound, "there is no blob %s", sum)
	}
	return int64(len(text)), nil
}

func (d *disk) Open(context.Context, string) (io.ReadSeekCloser, error) { panic("see open") }

func (d *disk) SetAside(_ context.Context, sum string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, sum)
	return nil
}

// slowDisk delivers the files.
type slowDisk struct{ *disk }

type slowFile struct {
	*strings.Reader

	takes time.Duration
}

func (f *slowFile) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		time.Sleep(f.takes) // of the bubble
	}
	return n, err
}

func (f *slowFile) WriteTo(io.Writer) (int64, error) { panic("it is read") }
func (f *slowFile) Close() error                     { return nil }

func (d slowDisk) Open(_ context.Context, sum string) (io.ReadSeekCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	return &slowFile{strings.NewReader(d.files[sum]), d.takes}, nil
}

// Who reports damage that is there has it found once; who reports none has the disk read for a tenth of the time at most.
func TestChecksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{files: map[string]string{}, takes: 5 * time.Second}
		name := func(text string) string {
			sum := sha256.Sum256([]byte(text))
			return hex.EncodeToString(sum[:])
		}
		for i := range 1000 {
			d.files[name(strconv.Itoa(i))] = strconv.Itoa(i)
		}
		c := blob.NewChecker(slowDisk{d}, slog.New(slog.DiscardHandler))
		began := time.Now()
		for time.Since(began) < 10*time.Minute { // a liar names what it can
			for i := range 1000 {
				if v, err := c.Check(t.Context(), name(strconv.Itoa(i)), "liar"); v == blob.Damaged || err != nil {
					t.Fatalf("an intact file is %s, %v", v, err)
				}
			}
			time.Sleep(time.Second)
		}
		if busy := time.Duration(d.reads) * d.takes; busy > time.Since(began)/10+d.takes {
			t.Errorf("in %s the disk was read for %s", time.Since(began), busy)
		}
		// Others are heard meanwhile.
		damaged := name("2000")
		d.files[damaged] = "2000 and more"
		before := d.reads
		if v, err := c.Check(t.Context(), damaged, "honest"); v != blob.Damaged || err != nil {
			t.Errorf("a damaged file is %s, %v", v, err)
		}
		if _, err := c.Check(t.Context(), damaged, "honest"); muster.CodeOf(err) != muster.NotFound {
			t.Errorf("once it is set aside: %v", err)
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
