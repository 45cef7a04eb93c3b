package archive_test

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect/trainforge/archive"
)

var smallLimits = archive.Limits{Files: 10, Bytes: 1000}

func zipped(tb testing.TB, add func(z *zip.Writer)) []byte {
	tb.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	add(z)
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func file(z *zip.Writer, name, text string) {
	w, _ := z.Create(name)
	_, _ = w.Write([]byte(text))
}

func TestBadArchives(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{
		"no archive":   []byte("hello"),
		"nothing":      nil,
		"out of it":    zipped(t, func(z *zip.Writer) { file(z, "../x", "1") }),
		"absolute":     zipped(t, func(z *zip.Writer) { file(z, "/etc/x", "1") }),
		"backslashes":  zipped(t, func(z *zip.Writer) { file(z, `a\..\..\x`, "1") }),
		"a drive":      zipped(t, func(z *zip.Writer) { file(z, `C:\x`, "1") }),
		"twice":        zipped(t, func(z *zip.Writer) { file(z, "a", "1"); file(z, "./a", "2") }),
		"file, folder": zipped(t, func(z *zip.Writer) { file(z, "a", "1"); file(z, "a/b", "2") }),
		"a bomb":       zipped(t, func(z *zip.Writer) { file(z, "a", strings.Repeat("0", 5000)) }),
		"many bombs":   zipped(t, func(z *zip.Writer) { file(z, "a", strings.Repeat("0", 600)); file(z, "b", strings.Repeat("0", 600)) }),
		"many files": zipped(t, func(z *zip.Writer) {
			for _, n := range "abcdefghijk" {
				file(z, string(n), "")
			}
		}),
		"a link": zipped(t, func(z *zip.Writer) {
			h := &zip.FileHeader{Name: "l"}
			h.SetMode(fs.ModeSymlink | 0o777)
			w, _ := z.CreateHeader(h)
			_, _ = w.Write([]byte("/etc/passwd"))
		}),
	} {
		dir := t.TempDir()
		err := archive.Unpack(t.Context(), bytes.NewReader(b), int64(len(b)), dir, smallLimits)
		if code := muster.CodeOf(err); code != muster.Invalid && code != muster.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An archive that says that it is small is not believed.
func TestALyingArchive(t *testing.T) {
	t.Parallel()
	b := zipped(t, func(z *zip.Writer) { file(z, "a", strings.Repeat("0", 5000)) })
	for i := 0; i+4 <= len(b); i++ {
		if b[i] == 0x88 && b[i+1] == 0x13 && b[i+2] == 0 && b[i+3] == 0 { // 5000
			b[i], b[i+1] = 1, 0
		}
	}
	dir := t.TempDir()
	if err := archive.Unpack(t.Context(), bytes.NewReader(b), int64(len(b)), dir, smallLimits); err == nil {
		t.Error("it is taken")
	}
	if info, err := os.Stat(filepath.Join(dir, "a")); err == nil && info.Size() > 1001 {
		t.Errorf("it has %d bytes", info.Size())
	}
}

// All unpacked files are in the folder, and is not larger than it may be.
func FuzzUnpack(f *testing.F) {
	f.Add(zipped(f, func(z *zip.Writer) { file(z, "a/b.txt", "x"); file(z, "c", "y") }))
	f.Add(zipped(f, func(z *zip.Writer) { file(z, "../c", "y") }))
	f.Fuzz(func(t *testing.T, b []byte) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		err := archive.Unpack(t.Context(), bytes.NewReader(b), int64(len(b)), dir, smallLimits)
		if list, _ := os.ReadDir(outer); len(list) != 1 {
			t.Fatalf("%v lie outside", list)
		}
		if err != nil {
			return
		}
		var total int64
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, _ error) error {
			info, err := d.Info()
			if err != nil || d.Type()&^fs.ModeDir != 0 {
				t.Fatalf("%s is %v, %v", d.Name(), d.Type(), err)
			}
			if !d.IsDir() {
				total += info.Size()
			}
			return nil
		})
		if total > smallLimits.Bytes {
			t.Fatalf("%d bytes", total)
		}
		// What was unpacked can be packed again.
		var again bytes.Buffer
		z := archive.NewWriter(&again, smallLimits.Bytes)
		if err := z.AddDir(t.Context(), dir, "p/"); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil || z.Remaining() != smallLimits.Bytes-total {
			t.Fatalf("%d left, %v", z.Remaining(), err)
		}
	})
}
