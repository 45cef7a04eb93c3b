package main

import (
	"bytes"
	"os"
	"testing"
)

func TestFilesAreCurrent(t *testing.T) {
	t.Chdir("../..")
	for _, f := range files {
		want, err := f.content()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run make gen", f.path)
		}
	}
}
