package client

import (
	"context"
	"io"
)

// Backup calls read with a backup of the server as it arrives, and returns its error. The server copies its database before the first byte, which
// may take minutes.
func (c *Client) Backup(ctx context.Context, read func(io.Reader) error) error {
	return c.download(ctx, "/backup", read)
}

// watchedReader resets a watchdog at each read, and keeps the error of the connection.
type watchedReader struct {
	r             io.Reader
	resetWatchdog func()
	err           error
}

func (w *watchedReader) Read(p []byte) (int, error) {
	w.resetWatchdog()
	n, err := w.r.Read(p)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}
