package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// stall is how long a transfer may stand still before its connection counts as
// broken.
const stall = time.Minute

// Artifacts lists the files of a task's last attempt.
func (c *Client) Artifacts(ctx context.Context, id muster.TaskID) ([]muster.Artifact, error) {
	var list wire.Artifacts
	err := c.do(ctx, call{method: http.MethodGet, path: taskPath(id) + "/artifacts", out: &list, repeat: true})
	return list.Artifacts, err
}

// Download writes an artifact to the file at path, which it replaces. An earlier
// Download that was broken off is resumed. The file appears under its name only when its
// hash was found right. progress, if not nil, is told how many bytes are there. Of a file that a running task has
// replaced since a was listed it is the last one.
func (c *Client) Download(ctx context.Context, id muster.TaskID, a muster.Artifact, path string, progress func(done int64)) error {
	return c.lastOf(ctx, id, a, func(a muster.Artifact) error { return c.download(ctx, id, a, path, progress) })
}

// replacements is how often a file may be replaced while it is to be downloaded.
const replacements = 10

// lastOf calls f with an artifact, and anew with what came in its place as long as it is told of a Conflict.
func (c *Client) lastOf(ctx context.Context, id muster.TaskID, a muster.Artifact, f func(muster.Artifact) error) error {
	for n := 0; ; n++ {
		err := f(a)
		if muster.CodeOf(err) != muster.Conflict || n == replacements {
			return err
		}
		list, lerr := c.Artifacts(ctx, id)
		i := slices.IndexFunc(list, func(b muster.Artifact) bool { return b.Name == a.Name })
		if lerr != nil || i < 0 {
			return cmp.Or(lerr, err)
		}
		a = list[i]
	}
}

func (c *Client) download(ctx context.Context, id muster.TaskID, a muster.Artifact, path string, progress func(done int64)) error {
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // the caller's own file
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot write %s: %w", part, err)
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	have, err := io.Copy(sum, f)
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot read %s: %w", part, err)
	}
	if have > a.Size { // of another file
		if have, sum = 0, sha256.New(); f.Truncate(0) != nil {
			return muster.Errorf(muster.Invalid, "cannot write %s: remove it and try again", part)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return muster.Errorf(muster.Internal, "cannot write %s: %w", part, err)
		}
	}
	if err := c.fetch(ctx, id, a, have, f, sum, progress); err != nil {
		if code := muster.CodeOf(err); code == muster.Invalid || code == muster.Conflict {
			err = errors.Join(err, os.Remove(part))
		}
		return err
	}
	if err := errors.Join(f.Close(), os.Rename(part, path)); err != nil {
		return muster.Errorf(muster.Invalid, "cannot write %s: %w", path, err)
	}
	return nil
}

// Read writes an artifact to w, and fails at the end if its hash is not right. It is the last one, as with Download, and
// fails if that is replaced while it is written.
func (c *Client) Read(ctx context.Context, id muster.TaskID, a muster.Artifact, w io.Writer) error {
	begun := false
	return c.lastOf(ctx, id, a, func(a muster.Artifact) error {
		if begun {
			return muster.Errorf(muster.Unavailable, "artifact %s of task %s was replaced while it was read: try again", a.Name, id)
		}
		return c.fetch(ctx, id, a, 0, w, sha256.New(), func(done int64) { begun = done > 0 })
	})
}

// fetch writes the bytes of an artifact from offset on to w and to sum, over
// broken connections. Bytes with a wrong hash are an Invalid error.
func (c *Client) fetch(ctx context.Context, id muster.TaskID, a muster.Artifact, offset int64, w io.Writer, sum hash.Hash, progress func(int64)) error {
	path := taskPath(id) + "/artifacts/" + escapePath(a.Name)
	sink := &counter{w: io.MultiWriter(w, sum), n: offset, progress: progress}
	giveUp := time.Now().Add(c.opts.StreamPatience)
	for b := (backoff{}); sink.n < a.Size; {
		before := sink.n
		err := c.fetchOnce(ctx, path, a.SHA256, sink)
		if err == nil {
			break
		}
		if sink.n > before {
			b, giveUp = backoff{}, time.Now().Add(c.opts.StreamPatience)
		}
		if muster.CodeOf(err) != muster.Unavailable || !time.Now().Before(giveUp) || b.wait(ctx) != nil {
			return err
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != a.SHA256 {
		_, _ = c.CheckBlob(ctx, a.SHA256) // a viewer may not; that it is damaged is said in any case
		return muster.Errorf(muster.Invalid, "artifact %s of task %s arrived damaged: its SHA-256 is %s, not %s; try again", a.Name, id, got, a.SHA256)
	}
	return nil
}

func (c *Client) fetchOnce(ctx context.Context, path, sum string, sink *counter) error {
	ctx, alive, stop := guard(ctx, stall)
	defer stop()
	header := http.Header{}
	header.Set("If-Match", `"`+sum+`"`) // a running task may put another one in its place
	if sink.n > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", sink.n))
	}
	resp, err := c.send(ctx, http.MethodGet, path, nil, header, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if sink.n > 0 && resp.StatusCode != http.StatusPartialContent {
		return muster.Errorf(muster.Internal, "%s answered %s to a request for a part of a file", c.base, resp.Status)
	}
	sink.alive = alive
	if _, err := io.Copy(sink, resp.Body); err != nil {
		if sink.err != nil {
			return muster.Errorf(muster.Invalid, "cannot write: %w", sink.err)
		}
		return c.unreachable(ctx, err)
	}
	return nil
}

// counter passes bytes on, counts them and tells of them.
type counter struct {
	w        io.Writer
	n        int64
	err      error
	alive    func()
	progress func(int64)
}

func (c *counter) Write(p []byte) (int, error) {
	c.alive()
	n, err := c.w.Write(p)
	c.n, c.err = c.n+int64(n), err
	if c.progress != nil {
		c.progress(c.n)
	}
	return n, err
}

// escapePath writes a slash-separated name into a URL.
func escapePath(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}
