package blob_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
)

// age sets the time of a blob's file back.
func age(t *testing.T, root, sum string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(filepath.Join(root, sum[:2], sum[2:4], sum), at, at); err != nil {
		t.Fatal(err)
	}
}

func wantRemoved(t *testing.T, d *blob.Dir, sum string, want bool) {
	t.Helper()
	if _, removed, err := d.RemoveUnused(t.Context(), sum, d.Now().Add(-time.Hour)); removed != want || err != nil {
		t.Fatalf("RemoveUnused = %t, %v, want %t", removed, err, want)
	}
}

func put(t *testing.T, d *blob.Dir, data []byte) string {
	t.Helper()
	if err := d.Put(t.Context(), hashOf(data), 0, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	return hashOf(data)
}

func TestUnusedBlobsAreRemoved(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := openDir(t, root)
	data := []byte("a file")
	sum := put(t, d, data)
	wantRemoved(t, d, sum, false)
	for name, use := range map[string]func() error{
		"touched":            func() error { _, err := d.Touch(t.Context(), sum); return err },
		"put again":          func() error { return d.Put(t.Context(), sum, 0, nil) },
		"uploaded by others": func() error { return d.ForOwner("o").Put(t.Context(), sum, 0, bytes.NewReader(data)) },
	} {
		age(t, root, sum, 2*time.Hour)
		if err := use(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantRemoved(t, d, sum, false)
	}
	age(t, root, sum, -48*time.Hour) // by a wrong clock of an earlier start
	if _, err := d.Touch(t.Context(), sum); err != nil {
		t.Fatal(err)
	}
	age(t, root, sum, 2*time.Hour)
	read, err := d.Open(t.Context(), sum)
	if err != nil {
		t.Fatal(err)
	}
	wantRemoved(t, d, sum, true)
	wantRemoved(t, d, sum, false)
	if _, err := d.Touch(t.Context(), sum); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("Touch of a removed blob: %v", err)
	}
	if got, err := io.ReadAll(read); err != nil || !bytes.Equal(got, data) {
		t.Errorf("an open file of a removed blob: %q, %v", got, err)
	}
	_ = read.Close()
	put(t, d, data)
	wantRemoved(t, d, sum, false)
}

// An upload that began long ago is young when it is complete.
func TestAnUploadIsYoungWhenItIsComplete(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := openDir(t, root)
	data := []byte("some bytes that come in two parts")
	interruptedPut(t, d, data, 10)
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(filepath.Join(root, "partial", hashOf(data)), old, old); err != nil {
		t.Fatal(err)
	}
	if err := d.Put(t.Context(), hashOf(data), 10, bytes.NewReader(data[10:])); err != nil {
		t.Fatal(err)
	}
	wantRemoved(t, d, hashOf(data), false)
}

// A client that knows that a blob exists finds it: Touch and RemoveUnused exclude each other.
func TestATouchedBlobIsNotRemoved(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := openDir(t, root)
	for i := range 300 {
		sum := put(t, d, []byte(strconv.Itoa(i)))
		age(t, root, sum, 2*time.Hour)
		var touched, removed bool
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := d.Touch(t.Context(), sum)
			touched = err == nil
		})
		wg.Go(func() {
			var err error
			if _, removed, err = d.RemoveUnused(t.Context(), sum, d.Now().Add(-time.Hour)); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if touched == removed {
			t.Fatalf("touched %t, removed %t", touched, removed)
		}
	}
}

func TestLeftoversAreDeletedAtOpen(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	openDir(t, root)
	sum := hashOf([]byte("x"))
	oldDamaged := filepath.Join(root, "damaged", sum+"."+strconv.FormatInt(time.Now().Add(-31*24*time.Hour).UnixNano(), 10))
	newDamaged := filepath.Join(root, "damaged", sum+"."+strconv.FormatInt(time.Now().UnixNano(), 10))
	removed := filepath.Join(root, "removed", sum)
	if err := os.MkdirAll(filepath.Join(root, "damaged"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{oldDamaged, newDamaged, removed} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	openDir(t, root)
	for path, want := range map[string]bool{oldDamaged: false, newDamaged: true, removed: false} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s exists: %t, want %t", path, err == nil, want)
		}
	}
}

func TestFilesListsAllBlobsInPages(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := openDir(t, root)
	var want []string
	for i := range 57 {
		want = append(want, put(t, d, []byte(strconv.Itoa(i))))
	}
	slices.Sort(want)
	for _, stray := range []string{"notes.txt", filepath.Join(want[0][:2], "stray"), filepath.Join(want[0][:2], want[0][2:4], "stray")} {
		if err := os.WriteFile(filepath.Join(root, stray), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{1, 2, 7, 56, 57, 58, 1000} {
		var got []string
		for after := ""; ; {
			page, err := d.Files(t.Context(), after, limit)
			if err != nil || len(page) > limit {
				t.Fatalf("%d files, %v", len(page), err)
			}
			for _, f := range page {
				got = append(got, f.SHA256)
				if f.Size < 1 || d.Now().Sub(f.At) > time.Minute {
					t.Fatalf("%+v", f)
				}
			}
			if len(page) < limit {
				break
			}
			after = page[len(page)-1].SHA256
		}
		if !slices.Equal(got, want) {
			t.Fatalf("pages of %d: %d files, want %d in order", limit, len(got), len(want))
		}
	}
}
