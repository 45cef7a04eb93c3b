package tasklog

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/muster-dev/muster"
)

// reader reads a log that may grow, and may not exist yet.
type reader struct {
	id   muster.AttemptID
	path string
	off  int64
	file *os.File // nil until it exists
}

// open opens the file if it exists.
func (r *reader) open() error {
	f, err := os.Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return wrapError("read", r.id, err)
	}
	r.file = f
	return nil
}

// Read implements io.Reader. At the end it returns io.EOF and may be repeated.
func (r *reader) Read(p []byte) (int, error) {
	if r.file == nil {
		if err := r.open(); err != nil {
			return 0, err
		}
		if r.file == nil {
			return 0, io.EOF
		}
	}
	if r.off > maxOffset { // longer than any log: the system would refuse to read there
		return 0, io.EOF
	}
	n, err := r.file.ReadAt(p, r.off)
	r.off += int64(n)
	switch {
	case n > 0, len(p) == 0:
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		return 0, io.EOF
	default:
		return 0, wrapError("read", r.id, err)
	}
}

// Close implements io.Closer.
func (r *reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
