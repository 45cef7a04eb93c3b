package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

const (
	resultName           = "result.json"
	maxArtifacts         = 10_000
	maxNameLen           = 1024 // bytes; a folder that lies deeper is not looked into: that takes the square of the depth
	maxConcurrentUploads = 4
	lateUploadTimeout    = time.Minute // for what a task that timed out has left
)

// collectOutputs takes the task's result and artifacts off the worker, whether or not it
// succeeded. Of a task that was stopped before its time nothing is taken.
func (a *Attempt) collectOutputs(ctx context.Context) error {
	stopped := a.stopped()
	if stopped != nil && stopped.Outcome != muster.AttemptTimedOut {
		return nil
	}
	if stopped != nil && !detaching(ctx) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lateUploadTimeout)
		defer cancel()
	}
	if len(a.Task.Spec.Outputs) == 0 && isEmpty(a.outDir()) {
		return nil // as most tasks leave it
	}
	a.checkFolders()
	a.readFailure()
	// The result is read first, so that it is there whatever becomes of the files.
	resultErr := a.readResult()
	files, err := a.findArtifacts(resultErr != nil)
	if uploadErr := a.upload(ctx, files); uploadErr != nil {
		return uploadErr
	}
	return errors.Join(resultErr, err, a.resolveCIDs(ctx, files))
}

// checkFolders makes sure that the folders to be read are those that were made: a task
// may have put links to other ones in their place. Nothing of it runs any more, so
// that what is looked at now stays as it is.
func (a *Attempt) checkFolders() {
	for _, dir := range []string{a.base, a.outDir(), a.Dir} {
		info, err := os.Lstat(dir)
		if err == nil && info.IsDir() || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		a.LogLine(filepath.Base(dir) + ", a folder of the task's, is no folder any more: nothing is taken from it")
		_ = os.Remove(dir) // a link or a file; nothing can be read where nothing is
	}
}

// readResult reads result.json.
func (a *Attempt) readResult() error {
	out, err := a.openFolder(a.outDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "$MUSTER_OUT cannot be read: %w", err)
	}
	defer func() { _ = out.Close() }()
	info, err := out.Lstat(resultName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !info.Mode().IsRegular() {
		return run.Failf(muster.ResultInvalid, "%s cannot be read: it is not a plain file", resultName)
	}
	f, err := run.OpenRegularIn(out, resultName)
	if err != nil {
		return run.Failf(muster.ResultInvalid, "%s cannot be read: %w", resultName, err)
	}
	defer f.Close()
	buf := make([]byte, muster.MaxResultSize+1)
	n := 0
	for n < len(buf) {
		m, err := f.Read(buf[n:])
		n += m
		if err != nil || m == 0 {
			break
		}
	}
	if n > muster.MaxResultSize {
		return run.Failf(muster.ResultInvalid, "%s is larger than %s: leave what is big in a file of its own", resultName, muster.Size(muster.MaxResultSize))
	}
	if !json.Valid(buf[:n]) || !utf8.Valid(buf[:n]) {
		return run.Failf(muster.ResultInvalid, "%s is not valid JSON (NaN and Infinity are not JSON either)", resultName)
	}
	a.result = append(json.RawMessage(nil), buf[:n]...)
	return nil
}

// outputFile is a file to take off the worker.
type outputFile struct {
	name string // of the artifact, and of the file in the folder
	dir  string // out, or work
}

// collector gathers files, by name and within bounds.
type collector struct {
	a         *Attempt
	seen      map[string]bool
	files     []outputFile
	truncated bool
}

// findArtifacts finds the artifacts: what is in $MUSTER_OUT, then what the spec's
// outputs match in the task's folder. Of two with one name the first counts.
func (a *Attempt) findArtifacts(withResult bool) ([]outputFile, error) {
	c := &collector{a: a, seen: map[string]bool{}}
	if err := c.addOutDir(withResult); err != nil {
		return c.files, err
	}
	if len(a.Task.Spec.Outputs) > 0 {
		if err := c.addGlobs(a.Task.Spec.Outputs); err != nil {
			return c.files, err
		}
	}
	if c.truncated {
		return c.files, run.Failf(muster.TaskInvalid, "there are more than %d artifacts, the rest is lost: pack them into an archive", maxArtifacts)
	}
	return c.files, nil
}

func (c *collector) addOutDir(withResult bool) error {
	root, err := c.a.openFolder(c.a.outDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the task removed it: nothing was left there
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "$MUSTER_OUT cannot be read: %w", err)
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return run.Failf(muster.WorkerInternal, "$MUSTER_OUT cannot be read: %w", err)
	}
	for _, e := range entries {
		if e.Name() != failureName && (e.Name() != resultName || withResult) {
			c.add(root, c.a.outDir(), e.Name())
		}
	}
	return nil
}

// addGlobs adds what the patterns match. One without wildcards must match.
func (c *collector) addGlobs(patterns []string) error {
	root, err := c.a.openFolder(c.a.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return run.Failf(muster.ArtifactMissing, "the task's folder is gone, and its outputs with it")
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "the task's folder cannot be read: %w", err)
	}
	defer func() { _ = root.Close() }()
	var missing error
	for _, pattern := range patterns {
		clean := strings.TrimSuffix(strings.TrimPrefix(pattern, "./"), "/")
		if !strings.ContainsAny(clean, `*?[{\`) {
			if c.add(root, c.a.Dir, clean) == 0 && missing == nil {
				missing = run.Failf(muster.ArtifactMissing, "the output %s is not in the task's folder", pattern)
			}
			continue
		}
		names, err := doublestar.Glob(depthLimitedFS{root.FS()}, clean, doublestar.WithNoFollow())
		if err != nil {
			return run.Failf(muster.TaskInvalid, "outputs: %q is not a pattern: %w", pattern, err)
		}
		for _, name := range names {
			c.add(root, c.a.Dir, name)
		}
	}
	return missing
}

// add takes a file, or all files of a folder, and returns how many match.
func (c *collector) add(root *os.Root, dir, name string) int {
	if len(c.files) >= maxArtifacts {
		c.truncated = true
		return 1
	}
	info, err := root.Stat(filepath.FromSlash(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0
	case err != nil:
		c.a.LogLine(fmt.Sprintf("%s is not taken as an artifact: %s", name, unreadableReason(root, name, err)))
		return 0
	case info.IsDir():
		if link, err := root.Lstat(filepath.FromSlash(name)); err != nil || !link.IsDir() {
			return 0 // a link to a folder: its files are taken where they are
		}
		if len(name) > maxNameLen {
			c.a.LogLine(fmt.Sprintf("%.60s… is not taken as an artifact: its path is longer than %d bytes", name, maxNameLen))
			return 0
		}
		entries, err := fs.ReadDir(root.FS(), name)
		if err != nil {
			c.a.LogLine(fmt.Sprintf("%s is not taken as an artifact: %s", name, unreadableReason(root, name, err)))
			return 0
		}
		n := 0
		for _, e := range entries {
			n += c.add(root, dir, strings.TrimPrefix(name+"/"+e.Name(), "./"))
		}
		return n
	case !info.Mode().IsRegular():
		c.a.LogLine(name + " is not taken as an artifact: it is not a file")
		return 0
	case !isValidName(name):
		c.a.LogLine(fmt.Sprintf("%q is not taken as an artifact: its name is not plain text", name))
		return 0
	}
	if !c.seen[name] {
		c.seen[name] = true
		c.files = append(c.files, outputFile{name, dir})
	}
	return 1
}

// unreadableReason says why a file cannot be looked at. A link that stays in the folder can, so others lead out of it.
func unreadableReason(root *os.Root, name string, err error) string {
	if link, lerr := root.Lstat(filepath.FromSlash(name)); lerr == nil && link.Mode()&fs.ModeSymlink != 0 {
		return "it is a link that leads out of the folder"
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	return err.Error()
}

// depthLimitedFS is a folder without what lies too deep in it.
type depthLimitedFS struct{ fs.FS }

// Stat implements fs.StatFS: without it files would be opened.
func (s depthLimitedFS) Stat(name string) (fs.FileInfo, error) { return fs.Stat(s.FS, name) }

// ReadDir implements fs.ReadDirFS.
func (s depthLimitedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if len(name) > maxNameLen {
		return nil, nil
	}
	return fs.ReadDir(s.FS, name)
}

func isValidName(s string) bool {
	return utf8.ValidString(s) && len(s) <= maxNameLen && !strings.ContainsFunc(s, unicode.IsControl)
}

// upload takes files off the worker, a few at once. The artifacts are those that
// arrived, in the order found.
func (a *Attempt) upload(ctx context.Context, files []outputFile) error {
	if len(files) == 0 {
		return nil
	}
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		next     int
		firstErr error
		uploaded = make([]muster.Artifact, len(files))
	)
	nextIndex := func() int {
		mu.Lock()
		defer mu.Unlock()
		if next == len(files) || firstErr != nil {
			return -1
		}
		next++
		return next - 1
	}
	for range min(maxConcurrentUploads, len(files)) {
		wg.Go(func() {
			for i := nextIndex(); i >= 0; i = nextIndex() {
				hash, size, err := a.uploadOne(ctx, files[i])
				mu.Lock()
				if err == nil {
					uploaded[i] = muster.Artifact{Name: files[i].name, Size: size, SHA256: hash}
				} else if firstErr == nil {
					firstErr = run.Failf(muster.UploadFailed, "the artifact %s could not be taken off the worker: %w", files[i].name, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, d := range uploaded {
		if d.SHA256 != "" {
			a.artifacts = append(a.artifacts, d)
		}
	}
	return firstErr
}

// uploadOne takes one file. It is opened anew in its own folder: something of the task that
// got away may have put a link to a file of the worker's in its place.
func (a *Attempt) uploadOne(ctx context.Context, f outputFile) (sha256 string, size int64, err error) {
	root, err := a.openFolder(f.dir)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = root.Close() }()
	file, err := run.OpenRegularIn(root, filepath.FromSlash(f.name))
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	return a.executor.deps.Transfer.UploadFile(ctx, file)
}

// openLiveOut opens $MUSTER_OUT if the task has made the folder in it whose files are shown while it runs. Most
// never do, and cost one call.
func (a *Attempt) openLiveOut() (*os.Root, error) {
	if _, err := os.Lstat(filepath.Join(a.outDir(), muster.LiveDir)); err != nil {
		return nil, err
	}
	return a.openFolder(a.outDir())
}

// openFolder opens a folder of the task's for reading what lies in it, and nothing else. The
// one around it is the worker's to change.
func (a *Attempt) openFolder(dir string) (*os.Root, error) {
	base, err := os.OpenRoot(a.base)
	if err != nil {
		return nil, err
	}
	defer func() { _ = base.Close() }()
	return base.OpenRoot(filepath.Base(dir))
}
