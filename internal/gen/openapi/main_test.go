package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestFileIsCurrent(t *testing.T) {
	want, err := document()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(target)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run make gen", target)
	}
}
