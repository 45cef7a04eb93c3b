package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestShare(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	read := func() map[string]string {
		dir, files := filepath.Join(t.TempDir(), "share"), map[string]string{}
		if err := run([]string{"share", dir}); err != nil {
			t.Fatal(err)
		}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			files[strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(dir)+"/")] = string(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	files := read()
	for name, want := range map[string]string{
		"man/man1/muster.1": " 2001-09-09 ", "man/man1/muster-workers-drain.1": `muster workers drain`, "man/man7/muster-states.7": "queued",
		"bash-completion/completions/muster": "complete ", "zsh/site-functions/_muster": "#compdef muster\n", "fish/vendor_completions.d/muster.fish": "complete ",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s does not have %q: %.200s", name, want, files[name])
		}
	}
	for name, content := range read() {
		if files[name] != content {
			t.Errorf("%s is not reproducible", name)
		}
	}
}

func TestWrongArguments(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	for _, args := range [][]string{{"share"}, {"x"}, {"share", "a", "b"}, {"share", filepath.Join(t.TempDir(), "x")}} {
		if run(args) == nil {
			t.Errorf("gen %v does not fail", args)
		}
	}
}
