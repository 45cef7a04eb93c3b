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

// countingStore counts how many files are open at the same time.
type countingStore struct {
	slowStore

	open, maxOpen atomic.Int64
}

type countingFile struct {
	io.ReadSeekCloser

	store *countingStore
}

func (d *countingStore) Open(ctx context.Context, sum string) (io.ReadSeekCloser, error) {
	n := d.open.Add(1)
	for highest := d.maxOpen.Load(); n > highest && !d.maxOpen.CompareAndSwap(highest, n); highest = d.maxOpen.Load() {
	}
	f, err := d.slowStore.Open(ctx, sum)
	return countingFile{f, d}, err
}

func (f countingFile) Close() error {
	f.store.open.Add(-1)
	return f.ReadSeekCloser.Close()
}

// Of many files that are to be checked at the same time one is read after the other.
func TestOneFileIsCheckedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &countingStore{slowStore: slowStore{&memStore{files: map[string]string{}, readTime: time.Second}}}
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
		if d.maxOpen.Load() != 1 || d.reads != len(names) {
			t.Errorf("%d files were read, %d at the same time; want %d, one at a time", d.reads, d.maxOpen.Load(), len(names))
		}
	})
}
