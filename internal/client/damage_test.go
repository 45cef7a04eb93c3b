package client_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster"
)

// A client reports a damaged download, and the server moves the damaged file aside.
func TestDamagedBytesAreReported(t *testing.T) {
	s, c, _ := start(t)
	task, a, content := artifact(t, s, c, "x", 50_000)
	path := filepath.Join(s.BlobsDir(), a.SHA256[:2], a.SHA256[2:4], a.SHA256)
	damaged := bytes.Clone(content)
	damaged[len(damaged)/2] ^= 1
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.ReadArtifact(t.Context(), task, a, io.Discard); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("damaged bytes: %v", err)
	}
	if err := c.ReadArtifact(t.Context(), task, a, io.Discard); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("after the report: %v", err)
	}
	if err := s.PutBlob(t.Context(), a.SHA256, string(content)); err != nil {
		t.Fatal(err)
	}
	if err := c.ReadArtifact(t.Context(), task, a, io.Discard); err != nil {
		t.Errorf("after a new upload: %v", err)
	}
}
