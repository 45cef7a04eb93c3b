package blob

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"testing"
	"testing/iotest"
	"time"
)

// A Dir also drops unfinished uploads long after it was opened, but none that is
// in progress.
func TestUnfinishedPutsAreRemovedLater(t *testing.T) {
	t.Parallel()
	d, err := OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-8 * 24 * time.Hour)
	broken := func(text string) (sum string) {
		h := sha256.Sum256([]byte(text + " and more"))
		sum = hex.EncodeToString(h[:])
		r := io.MultiReader(bytes.NewReader([]byte(text)), iotest.ErrReader(io.ErrUnexpectedEOF))
		if err := d.Put(t.Context(), sum, 0, r); err == nil {
			t.Fatal("an upload that broke off succeeded")
		}
		if err := os.Chtimes(d.partialPath(sum), old, old); err != nil {
			t.Fatal(err)
		}
		return sum
	}
	dead, alive := broken("dead"), broken("alive")
	unlock, err := d.lockUpload(t.Context(), alive, alive)
	if err != nil {
		t.Fatal(err)
	}
	d.lastSweep = old
	late := broken("late")
	unlock()
	for sum, want := range map[string]int64{dead: 0, alive: 5, late: 4} {
		if n, err := d.Partial(t.Context(), sum); n != want || err != nil {
			t.Errorf("%d bytes are kept, want %d (%v)", n, want, err)
		}
	}
}
