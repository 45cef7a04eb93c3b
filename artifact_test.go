package muster

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestCheckArtifactName(t *testing.T) {
	for _, name := range []string{
		"a", "a/b.txt", "...", "..a", "é ü.png", ".hidden", "live/a.png", "2026-11-28T10:00:00.pt", "model:b/c", "NUL", "aux.pt", "trailing.", "model (1) #2?.bin",
		"👩‍🚀.png", "می\u200cخواهم.txt", strings.Repeat("a", 255), strings.Repeat(strings.Repeat("a", 127)+"/", 7) + strings.Repeat("a", 128),
	} {
		if err := CheckArtifactName(name); err != nil {
			t.Errorf("%q %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"": "relative path", ".": "relative path", "..": "relative path", "/": "relative path", "/etc/passwd": "relative path", "../a": "relative path",
		"a/../../b": "relative path", "a/..": "relative path", "./a": "relative path", "a//b": "relative path", "a/": "relative path",
		`a\b`: "backslash", `..\a`: "backslash", `\\host\share\a`: "backslash", "c:a": "drive letter", "a:b/c": "drive letter", "C:/Windows/a": "drive letter", "a/d:x": "drive letter", "c:": "drive letter",
		"a\nb": "U+000A", "a\x00b": "U+0000", "\x1b]0;x\x07": "U+001B", "a\x7f": "U+007F", "\u0085": "U+0085", "\u009b31m": "U+009B",
		"txt.\u202egnp": "U+202E", "a\u200bb": "U+200B", "\ufeffa": "U+FEFF", "a\u2028b": "U+2028", "a\u2029b": "U+2029", "a\u2066b": "U+2066", "a\u00adb": "U+00AD",
		"\xff": "UTF-8", "a/\xc3(": "UTF-8",
		strings.Repeat("a", 256): "255 bytes", "a/" + strings.Repeat("é", 128): "255 bytes", strings.Repeat("a/", 512) + "a": "1024 bytes",
	} {
		if err := CheckArtifactName(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: error %v, want one with %q", name, err, want)
		}
	}
}

// FuzzArtifactName: a file with a valid name is below its directory, and its name is as safe to print as any text.
func FuzzArtifactName(f *testing.F) {
	for _, name := range []string{"a", "a/b", "..", "../a", "/a", `..\a`, "a//b", "C:/a", "\x1b[0m", "a\u202e", ".ssh/authorized_keys", "a/./b", "\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckArtifactName(name) != nil {
			return
		}
		if !filepath.IsLocal(name) || strings.ContainsAny(name, "\\\x00") || strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
			t.Errorf("%q is valid", name)
		}
		base := t.TempDir()
		root := makeRoot(t, filepath.Join(base, "in"))
		if dir := filepath.Dir(name); dir != "." {
			if err := root.MkdirAll(dir, 0o700); err != nil {
				t.Fatalf("%q: %v", name, err)
			}
		}
		file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		_ = file.Close()
		found := ""
		err = filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				found, err = filepath.Rel(filepath.Join(base, "in"), path)
			}
			return err
		})
		if err != nil || found != name {
			t.Errorf("%q became %q, %v", name, found, err)
		}
	})
}

func makeRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func TestConflictingPaths(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		paths := rapid.SliceOfN(rapid.StringMatching(`[ab!]{1,2}(/[ab!]{1,2}){0,2}`), 0, 12).Draw(rt, "paths")
		var want []int
		for i, p := range paths {
			if slices.ContainsFunc(paths[:i], func(q string) bool { return p == q || strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/") }) {
				want = append(want, i)
			}
		}
		if got := ConflictingPaths(paths); !slices.Equal(got, want) {
			rt.Fatalf("%q: %v, want %v", paths, got, want)
		}
	})
}
