package tarfolder

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

func open(root *os.Root, name string) (*os.File, error) { return root.Open(name) }

func root(tb testing.TB, dir string) *os.Root {
	tb.Helper()
	r, err := os.OpenRoot(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = r.Close() })
	return r
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		tb.Fatal(err)
	}
}

// listing returns the paths below a folder with their contents.
func listing(tb testing.TB, dir string) string {
	tb.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case d.Type()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			b.WriteString(rel + " -> " + target + "\n")
		case d.Type().IsRegular():
			text, _ := os.ReadFile(path)
			b.WriteString(rel + " " + string(text) + "\n")
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func TestRoundTrip(t *testing.T) {
	src := t.TempDir()
	write(t, filepath.Join(src, "d/a"), "1")
	write(t, filepath.Join(src, "d/sub/b"), "22")
	if err := os.Symlink("sub/b", filepath.Join(src, "d/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(src, "d/outside")); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := Pack(t.Context(), root(t, src), "d", "d", &archive, PackOptions{Open: open}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dest, source string
		exists       []string
		want         string // the prefix of all paths
		code         muster.Code
	}{
		"into a folder":       {dest: "x", exists: []string{"x"}, want: "x/d/"},
		"into the root":       {dest: "", want: "d/"},
		"under another name":  {dest: "y", want: "y/"},
		"below a new folder":  {dest: "y/z", code: muster.NotFound},
		"to a missing folder": {dest: "y/", code: muster.NotFound},
	} {
		dir := t.TempDir()
		for _, e := range c.exists {
			if err := os.Mkdir(filepath.Join(dir, e), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		r := root(t, dir)
		o, err := Destination(r, c.dest, "d", nil)
		if c.code != "" {
			if muster.CodeOf(err) != c.code {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(name, err)
		}
		notes := 0
		o.Note = func(string) { notes++ }
		if err := Unpack(t.Context(), bytes.NewReader(archive.Bytes()), r, o); err != nil {
			t.Fatal(name, err)
		}
		want := strings.NewReplacer("@", c.want).Replace("@a 1\n@link -> sub/b\n@sub/b 22\n")
		if got := listing(t, dir); got != want || notes != 1 {
			t.Errorf("%s: got %q with %d notes, want %q", name, got, notes, want)
		}
	}
}

// An interrupted copy leaves the old file and no other.
func TestInterruptedCopy(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "old")
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 1000, Mode: 0o600})
	_, _ = w.Write([]byte("new"))
	if err := Unpack(t.Context(), &b, root(t, dir), UnpackOptions{}); err == nil {
		t.Error("a truncated archive was unpacked")
	}
	if got := listing(t, dir); got != "a old\n" {
		t.Errorf("the folder has %q", got)
	}
}

// A folder that a hostile task prepares with links leads nowhere.
func TestLinksOfTheFolderAreNotFollowedOutside(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "secret"), "s")
	if err := os.Symlink(outside, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Pack(t.Context(), root(t, dir), "out/secret", "secret", &b, PackOptions{Open: open}); err == nil {
		t.Error("a file outside was packed")
	}
	b.Reset()
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "out/new", Size: 1, Mode: 0o600})
	_, _ = w.Write([]byte("x"))
	_ = w.Close()
	if err := Unpack(t.Context(), &b, root(t, dir), UnpackOptions{}); err == nil {
		t.Error("a file outside was written")
	}
	if got := listing(t, outside); got != "secret s\n" {
		t.Errorf("the folder outside has %q", got)
	}
}

// FuzzUnpack: nothing outside the root is changed, whatever the archive has.
func FuzzUnpack(f *testing.F) {
	add := func(headers ...tar.Header) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := range headers {
			_ = w.WriteHeader(&headers[i])
			_, _ = w.Write(make([]byte, headers[i].Size))
		}
		_ = w.Close()
		f.Add(b.Bytes())
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "../a", Size: 3})
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "../outside"}, tar.Header{Typeflag: tar.TypeReg, Name: "l/x", Size: 1})
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "d/l", Linkname: "../.."}, tar.Header{Typeflag: tar.TypeDir, Name: "d/l/outside/y"})
	add(tar.Header{Typeflag: tar.TypeLink, Name: "h", Linkname: "/etc/passwd"})
	f.Fuzz(func(t *testing.T, archive []byte) {
		base := t.TempDir()
		write(t, filepath.Join(base, "outside/keep"), "1")
		dir := filepath.Join(base, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = Unpack(t.Context(), io.LimitReader(bytes.NewReader(archive), 1<<20), root(t, dir), UnpackOptions{})
		entries, _ := os.ReadDir(base)
		if got := listing(t, filepath.Join(base, "outside")); got != "keep 1\n" || len(entries) != 2 {
			t.Errorf("outside has %q, and there are %d entries beside it", got, len(entries))
		}
	})
}

// archiveOf returns a tar archive; regular files have their size in zeros.
func archiveOf(tb testing.TB, headers ...tar.Header) *bytes.Buffer {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range headers {
		if err := w.WriteHeader(&headers[i]); err != nil {
			tb.Fatal(err)
		}
		_, _ = w.Write(make([]byte, headers[i].Size))
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return &b
}

// An archive writes through no link, whether the archive brought it or it was there, even if it stays in the folder.
func TestLinksAreNotWrittenThrough(t *testing.T) {
	for name, archive := range map[string][]tar.Header{
		"a link of the archive": {
			{Typeflag: tar.TypeSymlink, Name: "d/l", Linkname: "../.ssh"}, {Typeflag: tar.TypeReg, Name: "d/l/authorized_keys", Size: 1, Mode: 0o600},
		},
		"a link to a file of the archive": {
			{Typeflag: tar.TypeSymlink, Name: "d/l", Linkname: "../.ssh/authorized_keys"}, {Typeflag: tar.TypeReg, Name: "d/l", Size: 1, Mode: 0o600},
		},
		"a link of the folder": {{Typeflag: tar.TypeReg, Name: "d/old/authorized_keys", Size: 1, Mode: 0o600}},
		"a folder in one":      {{Typeflag: tar.TypeDir, Name: "d/old/new/", Mode: 0o700}},
		"another entry":        {{Typeflag: tar.TypeReg, Name: ".ssh/authorized_keys", Size: 1, Mode: 0o600}},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, ".ssh/authorized_keys"), "keys")
		write(t, filepath.Join(dir, "d/a"), "a")
		if err := os.Symlink("../.ssh", filepath.Join(dir, "d/old")); err != nil {
			t.Fatal(err)
		}
		r := root(t, dir)
		o, err := Destination(r, "", "d", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = Unpack(t.Context(), archiveOf(t, archive...), r, o)
		if got := listing(t, filepath.Join(dir, ".ssh")); got != "authorized_keys keys\n" {
			t.Errorf("%s: the folder has %q", name, got)
		}
	}
}

// Each entry is confirmed before it is written, with what exists and what the archive chose of its path. Others are left out.
func TestConfirm(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "there/old"), "old")
	if err := os.Symlink("old", filepath.Join(dir, "there/link")); err != nil {
		t.Fatal(err)
	}
	archive := archiveOf(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o700}, tar.Header{Typeflag: tar.TypeReg, Name: "d/old", Size: 1, Mode: 0o600},
		tar.Header{Typeflag: tar.TypeReg, Name: "d/link", Size: 1, Mode: 0o600}, tar.Header{Typeflag: tar.TypeDir, Name: "d/.ssh/", Mode: 0o700},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "d/new", Linkname: "old"}, tar.Header{Typeflag: tar.TypeReg, Name: "d/\x1b[2J", Size: 1, Mode: 0o600},
		tar.Header{Typeflag: tar.TypeReg, Name: ".bashrc", Size: 1, Mode: 0o600}, tar.Header{Typeflag: tar.TypeReg, Name: "d/last", Size: 1, Mode: 0o600},
		tar.Header{Typeflag: tar.TypeReg, Name: "d/never", Size: 1, Mode: 0o600},
	)
	var entries []Entry
	var notes []string
	stop := muster.Errorf(muster.Conflict, "no more")
	o := UnpackOptions{From: "d", To: "there", Note: func(text string) { notes = append(notes, text) }, CheckName: muster.CheckArtifactName, Confirm: func(e Entry) error {
		entries = append(entries, e)
		if e.Below == "last" {
			return stop
		}
		return nil
	}}
	if err := Unpack(t.Context(), archive, root(t, dir), o); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	want := []Entry{{"there/old", "old", true}, {"there/link", "link", true}, {"there/.ssh", ".ssh", false}, {"there/new", "new", false}, {"there/last", "last", false}}
	if !slices.Equal(entries, want) {
		t.Errorf("confirmed are %+v, want %+v", entries, want)
	}
	if text := strings.Join(notes, "\n"); len(notes) != 2 || !strings.Contains(text, `skipped "d/\x1b[2J": its name has the control`) || !strings.Contains(text, `skipped ".bashrc": it is not d or in it`) {
		t.Errorf("notes %q", notes)
	}
	if got := listing(t, dir); got != "there/link \x00\nthere/new -> old\nthere/old \x00\n" {
		t.Errorf("the folder has %q", got)
	}
}
