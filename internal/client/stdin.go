package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"github.com/muster-dev/muster"
)

// UploadStdin reads r to its end, uploads what it read and returns the value for the stdin field of a spec: "sha256:…". It holds the data in a
// temporary file. After the end of ctx a Read that waits, as for a terminal, continues in the background. progress is called with the number of bytes sent.
func (c *Client) UploadStdin(ctx context.Context, r io.Reader, progress func(done int64)) (string, error) {
	f, err := os.CreateTemp("", "muster-stdin-")
	if err != nil {
		return "", muster.Errorf(muster.Internal, "create a temporary file for standard input: %w", err)
	}
	defer func() { _ = errors.Join(os.Remove(f.Name()), f.Close()) }()
	type result struct {
		size int64
		sum  string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		h := sha256.New()
		n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(r, muster.MaxStdin+1))
		read <- result{n, hex.EncodeToString(h.Sum(nil)), err}
	}()
	var in result
	select {
	case in = <-read:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	switch {
	case in.err != nil:
		return "", muster.Errorf(muster.Invalid, "cannot read standard input into a temporary file (see $TMPDIR): %w", in.err)
	case in.size > muster.MaxStdin:
		return "", muster.Errorf(muster.TooLarge, "standard input is larger than %s: put it in a folder of --files", muster.Size(muster.MaxStdin))
	}
	missing, err := c.MissingBlobs(ctx, []string{in.sum})
	if err == nil && len(missing) > 0 {
		err = c.PutBlob(ctx, in.sum, f, in.size, progress)
	}
	return "sha256:" + in.sum, err
}
