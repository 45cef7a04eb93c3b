package blob_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/iotest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/blob/blobtest"
)

func openDir(t *testing.T, path string) *blob.Dir {
	t.Helper()
	d, err := blob.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDir(t *testing.T) {
	t.Parallel()
	blobtest.Run(t, func(t *testing.T) blob.Store {
		t.Helper()
		return openDir(t, t.TempDir())
	})
}

func hashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// interruptedPut leaves the first n bytes of data as a partial file.
func interruptedPut(t *testing.T, d *blob.Dir, data []byte, n int) {
	t.Helper()
	errBroken := errors.New("broken")
	r := io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(errBroken))
	if err := d.Put(t.Context(), hashOf(data), 0, r); !errors.Is(err, errBroken) {
		t.Fatalf("Put = %v", err)
	}
}

func TestPartialPutsAreKeptForAWeek(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	data := []byte("some bytes that come in two parts")
	interruptedPut(t, openDir(t, root), data, 10)
	d := openDir(t, root)
	if n, err := d.Partial(t.Context(), hashOf(data)); n != 10 || err != nil {
		t.Fatalf("Partial = %d, %v, want 10", n, err)
	}
	old := time.Now().Add(-8 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(root, "partial", hashOf(data)), old, old); err != nil {
		t.Fatal(err)
	}
	if n, err := openDir(t, root).Partial(t.Context(), hashOf(data)); n != 0 || err != nil {
		t.Fatalf("Partial = %d, %v, want 0 after a week", n, err)
	}
}

// A partial file that was damaged, as by a loss of power, cannot become a blob.
func TestDamagedPartialIsDropped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := openDir(t, root)
	data := []byte("some bytes that come in two parts")
	interruptedPut(t, d, data, 10)
	if err := os.WriteFile(filepath.Join(root, "partial", hashOf(data)), make([]byte, 10), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Put(t.Context(), hashOf(data), 10, bytes.NewReader(data[10:])); muster.CodeOf(err) != muster.Invalid {
		t.Fatalf("Put = %v, want an Invalid error", err)
	}
	if err := d.Put(t.Context(), hashOf(data), 0, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestPutStreamsFiles(t *testing.T) {
	const size = 64 << 20
	h := sha256.New()
	if _, err := io.CopyN(h, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	d := openDir(t, t.TempDir())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := d.Put(t.Context(), hex.EncodeToString(h.Sum(nil)), 0, io.LimitReader(zeros{}, size)); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Fatalf("putting %d bytes allocated %d", size, used)
	}
}
