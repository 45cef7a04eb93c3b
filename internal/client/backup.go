package client

import (
	"context"
	"io"
	"net/http"
)

// Backup calls read with a backup of the server as it arrives, and returns its error. The server copies its database before the first byte, which
// may take minutes.
func (c *Client) Backup(ctx context.Context, read func(io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.send(ctx, http.MethodGet, "/backup", nil, nil, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	ctx, resetWatchdog, stop := withWatchdog(ctx, stallTimeout)
	defer stop()
	defer context.AfterFunc(ctx, cancel)()
	body := &watchedReader{r: resp.Body, resetWatchdog: resetWatchdog}
	err = read(body)
	if body.err != nil {
		return c.unreachableError(ctx, body.err)
	}
	return err
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
