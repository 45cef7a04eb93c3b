package blob

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/muster-dev/muster"
)

// A client that continues an upload in small pieces does not cost the hash of all that is there each time.
func TestAContinuedPutIsNotReadAgain(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d, err := OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	sha := func(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) }
	data := bytes.Repeat([]byte("some bytes that come in many parts"), 1000)
	name := sha(data)
	put := func(offset, n int) {
		t.Helper()
		rest := io.MultiReader(bytes.NewReader(data[offset:offset+n]), iotest.ErrReader(errors.New("connection lost")))
		if err := d.Put(t.Context(), name, int64(offset), rest); muster.CodeOf(err) != muster.Unavailable {
			t.Fatal(err)
		}
	}
	put(0, 1000)
	path := filepath.Join(root, "partial", name)
	if err := os.WriteFile(path, make([]byte, 1000), 0o600); err != nil { // who reads it has another hash
		t.Fatal(err)
	}
	for n := 1000; n < 1010; n++ {
		put(n, 1)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, resumed, err := d.resumeHash(f, name, 1010)
	if err != nil || !resumed || hex.EncodeToString(h.Sum(nil)) != sha(data[:1010]) {
		t.Errorf("the state of the hash was not kept: %v, %v", resumed, err)
	}
	// A state for another size is not used.
	if _, resumed, err := d.resumeHash(f, name, 1009); err != nil || resumed {
		t.Errorf("a state for another size is used: %v", err)
	}
}
