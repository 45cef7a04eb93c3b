//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPipedInput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if hasPipedInput(r) {
		t.Error("an empty pipe has input")
	}
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if !hasPipedInput(r) {
		t.Error("a pipe with data has no input")
	}
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if hasPipedInput(r) {
		t.Error("a closed pipe has input")
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if hasPipedInput(f) || hasPipedInput(strings.NewReader("x")) {
		t.Error("something else than a pipe has input")
	}
}
