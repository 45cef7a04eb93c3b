package client_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/muster-dev/muster"
)

// zeros is an endless input.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestUploadStdin(t *testing.T) {
	s, c, _ := start(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, input := range []string{"", "some input\n", "some input\n"} {
		name, err := c.UploadStdin(t.Context(), strings.NewReader(input), nil)
		if err != nil || name != "sha256:"+sha256Hex([]byte(input)) {
			t.Errorf("%q is %q, %v", input, name, err)
		}
	}
	f, err := s.Blobs.Open(t.Context(), sha256Hex([]byte("some input\n")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || string(got) != "some input\n" {
		t.Errorf("the server has %q, %v", got, err)
	}
	broken := errors.New("broken pipe")
	if _, err := c.UploadStdin(t.Context(), iotest.ErrReader(broken), nil); muster.CodeOf(err) != muster.Invalid || !errors.Is(err, broken) {
		t.Errorf("of a broken input: %v", err)
	}
	r, w := io.Pipe() // nothing is ever written
	defer w.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, err := c.UploadStdin(ctx, r, nil); !errors.Is(err, broken) {
		t.Errorf("of an input that waits: %v", err)
	}
	if testing.Short() {
		t.Skip("writes a GiB: not for -short")
	}
	if _, err := c.UploadStdin(t.Context(), zeros{}, nil); muster.CodeOf(err) != muster.TooLarge {
		t.Errorf("of an endless input: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
