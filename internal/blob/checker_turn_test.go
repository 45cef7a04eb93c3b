package blob_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster/internal/blob"
)

// busyDisk counts how many files are open at the same time.
type busyDisk struct {
	slowDisk

	open, most atomic.Int64
}

type busyFile struct {
	io.ReadSeekCloser

	disk *busyDisk
}

func (d *busyDisk) Open(ctx context.Context, sum string) (io.ReadSeekCloser, error) {
	n := d.open.Add(1)
	for most := d.most.Load(); n > most && !d.most.CompareAndSwap(most, n); most = d.most.Load() {
	}
	f, err := d.slowDisk.Open(ctx, sum)
	return busyFile{f, d}, err
}

func (f busyFile) Close() error {
	f.disk.open.Add(-1)
	return f.ReadSeekCloser.Close()
}

// Of many files that are to be checked at the same time one is read after the other.
func TestOneFileIsCheckedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &busyDisk{slowDisk: slowDisk{&disk{files: map[string]string{}, takes: time.Second}}}
		var names []string
		for i := range 10 {
			sum := sha256.Sum256([]byte(strconv.Itoa(i)))
			names = append(names, hex.EncodeToString(sum[:]))
			d.files[names[i]] = strconv.Itoa(i)
		}
		c := blob.NewChecker(d, slog.New(slog.DiscardHandler))
		var all sync.WaitGroup
		for i, name := range names {
			all.Go(func() {
				if v, err := c.Check(t.Context(), name, "asker "+strconv.Itoa(i)); v != blob.Intact || err != nil {
					t.Errorf("file %d is %s, %v", i, v, err)
				}
			})
		}
		all.Wait()
		if d.most.Load() != 1 || d.reads != len(names) {
			t.Errorf("%d files were read, %d at the same time; want %d, one at a time", d.reads, d.most.Load(), len(names))
		}
	})
}
