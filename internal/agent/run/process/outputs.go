package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/cid"
)

const (
	resultName           = "result.json"
	maxArtifacts         = 10_000
	maxNameLen           = muster.MaxArtifactName // deeper folders are not read, because the time grows with the square of the depth
	maxConcurrentUploads = 4
	lateUploadTimeout    = time.Minute // for a task that timed out
)

// collectOutputs reads the task's result and uploads its artifacts, whether or not it succeeded. It skips a task that was stopped,
// unless by its timeout.
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
		return nil
	}
	a.checkFolders()
	a.readFailure()
	// The result comes first: it does not depend on the uploads.
	resultErr := a.readResult()
	files, err := a.findArtifacts(resultErr != nil)
	if uploadErr := a.upload(ctx, files); uploadErr != nil {
		return uploadErr
	}
	return errors.Join(resultErr, err, a.resolveCIDs(ctx, files))
}

// checkFolders removes links and files that a task put in the place of its folders. No process of the task runs any more, so the
// check stays valid.
func (a *Attempt) checkFolders() {
	for _, dir := range []string{a.base, a.outDir(), a.Dir} {
		info, err := os.Lstat(dir)
		if err == nil && info.IsDir() || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		a.LogLine("the task replaced its folder " + filepath.Base(dir) + " with something else: no files are collected from it")
		_ = os.Remove(dir) // a link or a file
	}
}

func (a *Attempt) readResult() error {
	b, err := a.readOutFile(resultName, muster.MaxResultSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	a.ownResult = true
	switch {
	case err != nil:
		if taskErr, ok := errors.AsType[*run.TaskError](err); ok {
			return taskErr
		}
		return run.Failf(muster.ResultInvalid, "cannot read %s: %w", resultName, err)
	case len(b) > muster.MaxResultSize:
		return run.Failf(muster.ResultInvalid, "%s is larger than %s: write large data to other files", resultName, muster.Size(muster.MaxResultSize))
	case !json.Valid(b) || !utf8.Valid(b):
		return run.Failf(muster.ResultInvalid, "%s is not valid JSON (NaN and Infinity are not JSON either)", resultName)
	}
	a.result = b
	return nil
}

// readOutFile returns at most maxSize+1 bytes of a regular file in $MUSTER_OUT. It does not follow a link.
func (a *Attempt) readOutFile(name string, maxSize int64) ([]byte, error) {
	out, err := a.openFolder(a.outDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = run.Failf(muster.WorkerInternal, "read $MUSTER_OUT: %w", err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	if info, err := out.Lstat(name); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := run.OpenRegularIn(out, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

type outputFile struct {
	name string // of the artifact, and the path in dir
	dir  string // the out or the work folder
}

// collector gathers at most maxArtifacts files with distinct valid names.
type collector struct {
	a         *Attempt
	seen      map[string]bool
	files     []outputFile
	truncated bool
}

// findArtifacts lists the files in $MUSTER_OUT, then those in the task's folder that the spec's outputs match. The first file with a
// name wins, also over a folder with that name.
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
	c.dropConflicts()
	if c.truncated {
		return c.files, run.Failf(muster.TaskInvalid, "more than %d artifacts, the rest is dropped: pack them into an archive", maxArtifacts)
	}
	return c.files, nil
}

func (c *collector) addOutDir(withResult bool) error {
	root, err := c.a.openFolder(c.a.outDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the task removed it
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "read $MUSTER_OUT: %w", err)
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return run.Failf(muster.WorkerInternal, "read $MUSTER_OUT: %w", err)
	}
	for _, e := range entries {
		if e.Name() != failureName && (e.Name() != resultName || withResult) {
			c.add(root, c.a.outDir(), e.Name())
		}
	}
	return nil
}

// addGlobs adds the files that the patterns match. A pattern without wildcards must match.
func (c *collector) addGlobs(patterns []string) error {
	root, err := c.a.openFolder(c.a.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return run.Failf(muster.ArtifactMissing, "the task removed its folder with all outputs")
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "read the task's folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	var missing error
	for _, pattern := range patterns {
		clean := strings.TrimSuffix(strings.TrimPrefix(pattern, "./"), "/")
		if !strings.ContainsAny(clean, `*?[{\`) {
			if c.add(root, c.a.Dir, clean) == 0 && missing == nil {
				missing = run.Failf(muster.ArtifactMissing, "output %s does not exist in the task's folder", pattern)
			}
			continue
		}
		names, err := doublestar.Glob(depthLimitedFS{root.FS()}, clean, doublestar.WithNoFollow())
		if err != nil {
			return run.Failf(muster.TaskInvalid, "outputs: invalid pattern %q: %w", pattern, err)
		}
		for _, name := range names {
			c.add(root, c.a.Dir, name)
		}
	}
	return missing
}

// add adds a file, or all files of a folder, and returns how many match.
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
			return 0 // a link to a folder
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
	}
	if err := muster.CheckArtifactName(name); err != nil {
		c.a.LogLine(fmt.Sprintf("%.60q is not taken as an artifact: its name %s", name, err))
		return 0
	}
	switch {
	case dir == c.a.Dir && c.a.isSecretFile(root, info):
		return 0
	case c.a.redactor.String(name) != name:
		c.a.LogLine(name + " is not taken as an artifact: its name has the value of a secret")
		return 0
	}
	if !c.seen[name] {
		c.seen[name] = true
		c.files = append(c.files, outputFile{name, dir})
	}
	return 1
}

// dropConflicts drops files of the task's folder below whose path $MUSTER_OUT has files, or the reverse.
func (c *collector) dropConflicts() {
	names := make([]string, len(c.files))
	for i, f := range c.files {
		names[i] = f.name
	}
	for _, i := range slices.Backward(muster.ConflictingPaths(names)) {
		c.a.LogLine(fmt.Sprintf("%q is not taken as an artifact: it is a file in the task's folder and a folder in $MUSTER_OUT, or the reverse", names[i]))
		c.files = slices.Delete(c.files, i, i+1)
	}
}

// unreadableReason returns why Stat failed. It succeeds for links within the folder, so other links point outside.
func unreadableReason(root *os.Root, name string, err error) string {
	if link, lerr := root.Lstat(filepath.FromSlash(name)); lerr == nil && link.Mode()&fs.ModeSymlink != 0 {
		return "it is a link that points outside the folder"
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	return err.Error()
}

// depthLimitedFS hides the content of folders whose path is longer than maxNameLen.
type depthLimitedFS struct{ fs.FS }

// Stat implements fs.StatFS. Without it, package fs would open the file.
func (s depthLimitedFS) Stat(name string) (fs.FileInfo, error) { return fs.Stat(s.FS, name) }

// ReadDir implements fs.ReadDirFS.
func (s depthLimitedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if len(name) > maxNameLen {
		return nil, nil
	}
	return fs.ReadDir(s.FS, name)
}

// upload uploads files, maxConcurrentUploads at a time. a.artifacts gets those that succeeded, in the order of files.
func (a *Attempt) upload(ctx context.Context, files []outputFile) error {
	uploaded := make([]muster.Artifact, len(files))
	var group errgroup.Group
	group.SetLimit(maxConcurrentUploads)
	var failed atomic.Bool
	for i, f := range files {
		group.Go(func() error {
			if failed.Load() {
				return nil
			}
			hash, size, err := a.uploadOne(ctx, f)
			if err != nil {
				failed.Store(true)
				return run.Failf(muster.UploadFailed, "upload artifact %s: %w", f.name, err)
			}
			uploaded[i] = muster.Artifact{Name: f.name, Size: size, SHA256: hash}
			return nil
		})
	}
	err := group.Wait()
	a.artifacts = append(a.artifacts, slices.DeleteFunc(uploaded, func(f muster.Artifact) bool { return f.SHA256 == "" })...)
	return err
}

func (a *Attempt) uploadOne(ctx context.Context, f outputFile) (sha256 string, size int64, err error) {
	file, err := a.openOutput(f)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	return a.executor.deps.Transfer.UploadFile(ctx, file)
}

// openOutput opens a file within its folder: an escaped process of the task may have replaced it by a link to a file of the worker.
func (a *Attempt) openOutput(f outputFile) (*os.File, error) {
	root, err := a.openFolder(f.dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return run.OpenRegularIn(root, filepath.FromSlash(f.name))
}

// openLiveOut opens $MUSTER_OUT if the task has created the folder for live files in it.
func (a *Attempt) openLiveOut() (*os.Root, error) {
	if _, err := os.Lstat(filepath.Join(a.outDir(), muster.LiveDir)); err != nil {
		return nil, err
	}
	return a.openFolder(a.outDir())
}

// openFolder opens a folder of the task for reads that cannot escape it. Only the worker can change its parent.
func (a *Attempt) openFolder(dir string) (*os.Root, error) {
	base, err := os.OpenRoot(a.base)
	if err != nil {
		return nil, err
	}
	defer func() { _ = base.Close() }()
	return base.OpenRoot(filepath.Base(dir))
}

// resolveCIDs replaces each string ipfs://{NAME} of the result by ipfs://Qm…, the content identifier of the artifact NAME, and
// sets the CID of that artifact. Other bytes of the result do not change.
func (a *Attempt) resolveCIDs(ctx context.Context, files []outputFile) error {
	if !bytes.Contains(a.result, []byte("{")) || !bytes.Contains(a.result, []byte("ipfs:")) {
		return nil // fast path. JSON may escape a slash, so the search text has none
	}
	result, err := replaceStrings(a.result, func(text string) (string, error) {
		name, ok := cidPlaceholder(text)
		if !ok {
			return text, nil
		}
		i := slices.IndexFunc(a.artifacts, func(f muster.Artifact) bool { return f.Name == name })
		if i < 0 {
			return "", run.Failf(muster.ResultInvalid, "%s refers to %s, but there is no artifact %s: write that file to $MUSTER_OUT", resultName, text, name)
		}
		f := &a.artifacts[i]
		if f.CID == "" {
			index := slices.IndexFunc(files, func(f outputFile) bool { return f.name == name })
			id, err := a.computeCID(ctx, files[index])
			if err != nil {
				return "", run.Failf(muster.WorkerInternal, "compute the content identifier of %s: %w", name, err)
			}
			f.CID = id
		}
		return cid.Scheme + f.CID, nil
	})
	if err == nil && len(result) > muster.MaxResultSize {
		err = run.Failf(muster.ResultInvalid, "%s is larger than %s after its content identifiers are filled in", resultName, muster.Size(muster.MaxResultSize))
	}
	if err != nil {
		return err
	}
	a.result = result
	return nil
}

// cidPlaceholder returns the artifact name of ipfs://{NAME}.
func cidPlaceholder(text string) (string, bool) {
	name, ok := strings.CutPrefix(text, cid.Scheme+"{")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, "}")
}

func (a *Attempt) computeCID(ctx context.Context, f outputFile) (string, error) {
	file, err := a.openOutput(f)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return cid.Sum(run.ContextReader(ctx, file))
}

// replaceStrings applies f to each string value of valid JSON, not to field names.
func replaceStrings(raw []byte, f func(string) (string, error)) ([]byte, error) {
	var out []byte
	for i := 0; i < len(raw); {
		if raw[i] != '"' {
			out = append(out, raw[i])
			i++
			continue
		}
		end := i + 1
		for raw[end] != '"' {
			if raw[end] == '\\' {
				end++
			}
			end++
		}
		end++
		text := raw[i:end]
		if rest := bytes.TrimLeft(raw[end:], " \t\r\n"); len(rest) == 0 || rest[0] != ':' {
			var before string
			if err := json.Unmarshal(text, &before); err != nil {
				return nil, err
			}
			after, err := f(before)
			if err != nil {
				return nil, err
			}
			if after != before {
				if text, err = json.Marshal(after); err != nil {
					return nil, err
				}
			}
		}
		out = append(out, text...)
		i = end
	}
	return out, nil
}
