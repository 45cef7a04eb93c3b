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
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
)

// stallTimeout is the time without progress after which a transfer's connection counts as
// broken.
const stallTimeout = time.Minute

// Artifacts lists the files of a task's last attempt.
func (c *Client) Artifacts(ctx context.Context, id muster.TaskID) ([]muster.Artifact, error) {
	list, err := get[wire.Artifacts](ctx, c, taskPath(id)+"/artifacts", nil)
	return list.Artifacts, err
}

// DownloadArtifact writes an artifact to a target, whose directory it creates. It resumes an interrupted download. The file appears under
// its name only after its hash was verified. progress, if not nil, is called with the number of bytes written. If a running task has
// replaced the artifact since a was listed, it downloads the newest version.
func (c *Client) DownloadArtifact(ctx context.Context, id muster.TaskID, a muster.Artifact, to Target, progress func(done int64)) error {
	dir, err := to.openDir(true)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	var part string
	err = c.withLatest(ctx, id, a, func(a muster.Artifact) error {
		part = partName(path.Base(to.Name), a.SHA256)
		return c.downloadArtifact(ctx, id, a, dir, part, progress)
	})
	if err != nil {
		return err
	}
	return to.place(dir, part, path.Base(to.Name))
}

// maxReplacements is how often a file may be replaced during its download.
const maxReplacements = 10

// withLatest calls f with an artifact, and again with the newest version while f returns Conflict.
func (c *Client) withLatest(ctx context.Context, id muster.TaskID, a muster.Artifact, f func(muster.Artifact) error) error {
	for n := 0; ; n++ {
		err := f(a)
		if muster.CodeOf(err) != muster.Conflict || n == maxReplacements {
			return err
		}
		list, listErr := c.Artifacts(ctx, id)
		i := slices.IndexFunc(list, func(b muster.Artifact) bool { return b.Name == a.Name })
		if listErr != nil || i < 0 {
			return cmp.Or(listErr, err)
		}
		a = list[i]
	}
}

// downloadArtifact completes a partial download in a directory.
func (c *Client) downloadArtifact(ctx context.Context, id muster.TaskID, a muster.Artifact, dir *os.Root, part string, progress func(done int64)) error {
	name := filepath.Join(dir.Name(), part)
	f, err := openPart(dir, part)
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot write %s: %w", name, reason(err))
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	have, err := io.Copy(sum, f)
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot read %s: %w", name, reason(err))
	}
	if have > a.Size { // a different file
		have, sum = 0, sha256.New()
		_, err := f.Seek(0, io.SeekStart)
		if errors.Join(err, f.Truncate(0)) != nil {
			return muster.Errorf(muster.Invalid, "cannot write %s: remove it and try again", name)
		}
	}
	if err := c.fetchArtifact(ctx, id, a, have, f, sum, progress); err != nil {
		if code := muster.CodeOf(err); code == muster.Invalid || code == muster.Conflict {
			err = errors.Join(err, dir.Remove(part))
		}
		return err
	}
	if err := f.Close(); err != nil {
		return muster.Errorf(muster.Invalid, "cannot write %s: %w", name, reason(err))
	}
	return nil
}

// ReadArtifact writes an artifact to w, in its newest version as DownloadArtifact does. It fails at the end if the hash is wrong, and
// if the artifact is replaced while it is written.
func (c *Client) ReadArtifact(ctx context.Context, id muster.TaskID, a muster.Artifact, w io.Writer) error {
	started := false
	return c.withLatest(ctx, id, a, func(a muster.Artifact) error {
		if started {
			return muster.Errorf(muster.Unavailable, "artifact %s of task %s was replaced while it was read: try again", a.Name, id)
		}
		return c.fetchArtifact(ctx, id, a, 0, w, sha256.New(), func(done int64) { started = done > 0 })
	})
}

// fetchArtifact writes the bytes of an artifact from offset on to w and to sum. It resumes
// after broken connections. A wrong hash is an Invalid error.
func (c *Client) fetchArtifact(ctx context.Context, id muster.TaskID, a muster.Artifact, offset int64, w io.Writer, sum hash.Hash, progress func(int64)) error {
	path := taskPath(id) + "/artifacts/" + (&url.URL{Path: a.Name}).EscapedPath()
	dst := &progressWriter{w: io.MultiWriter(w, sum), n: offset, progress: progress}
	retries := c.newRetrier(c.opts.StreamRetryTimeout)
	for dst.n < a.Size {
		before := dst.n
		err := c.fetchOnce(ctx, path, a, dst)
		if err == nil {
			break
		}
		if dst.n > before {
			retries.progressed(c.opts.StreamRetryTimeout)
		}
		if muster.CodeOf(err) != muster.Unavailable || !retries.wait(ctx, err) {
			return err
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != a.SHA256 {
		_, _ = c.CheckBlob(ctx, a.SHA256) // viewers may not; the error below reports the damage anyway
		return muster.Errorf(muster.Invalid, "artifact %s of task %s arrived damaged: its SHA-256 is %s, not %s; try again", a.Name, id, got, a.SHA256)
	}
	return nil
}

// fetchOnce fetches the rest of an artifact, and at most a byte more, whatever the server sends.
func (c *Client) fetchOnce(ctx context.Context, path string, a muster.Artifact, dst *progressWriter) error {
	ctx, resetWatchdog, stop := withWatchdog(ctx, stallTimeout)
	defer stop()
	header := http.Header{}
	header.Set("If-Match", `"`+a.SHA256+`"`) // a running task may replace it
	if dst.n > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", dst.n))
	}
	resp, err := c.send(ctx, http.MethodGet, path, nil, header, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if dst.n > 0 && resp.StatusCode != http.StatusPartialContent {
		return muster.Errorf(muster.Internal, "%s answered %s to a range request", c.base, resp.Status)
	}
	dst.resetWatchdog = resetWatchdog
	if _, err := io.Copy(dst, io.LimitReader(resp.Body, a.Size-dst.n+1)); err != nil {
		if dst.err != nil {
			return muster.Errorf(muster.Invalid, "cannot write: %w", dst.err)
		}
		return c.unreachableError(ctx, err)
	}
	return nil
}

// progressWriter writes to w and reports the bytes written.
type progressWriter struct {
	w             io.Writer
	n             int64
	err           error
	resetWatchdog func()
	progress      func(int64)
}

func (c *progressWriter) Write(p []byte) (int, error) {
	c.resetWatchdog()
	n, err := c.w.Write(p)
	c.n, c.err = c.n+int64(n), err
	if c.progress != nil {
		c.progress(c.n)
	}
	return n, err
}
