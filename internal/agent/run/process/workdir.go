package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

func (a *Attempt) makeFolders(context.Context) error {
	a.setPaths()
	err := a.folderPool().acquire(a.base)
	if err == nil {
		a.checkpoint, err = a.executor.checkpoints.acquire(checkpointName(a.Task), a.Task.Fresh)
	}
	if err != nil {
		return run.Failf(muster.WorkerInternal, "create the task's folder: %w", err)
	}
	return nil
}

// setPaths sets the paths of the attempt's folders. They are the same in every incarnation of the worker.
func (a *Attempt) setPaths() {
	id := a.Task.Attempt
	a.base = filepath.Join(a.executor.tasks, id.Task.String()+"-"+strconv.Itoa(id.N))
	a.Dir = filepath.Join(a.base, "work")
}

func (a *Attempt) folderPool() *folderPool {
	if a.mode == modeContainer {
		return &a.executor.containerFolders
	}
	return &a.executor.processFolders
}

func (a *Attempt) outDir() string { return filepath.Join(a.base, "out") }

// envTag returns the environment entry that identifies this attempt's processes on the machine. All containers have the same
// $MUSTER_OUT, so they get a hash, which does not disclose the worker's paths.
func (a *Attempt) envTag() string {
	if r := a.Task.Recovered; r != nil && r.Start.EnvTag != "" {
		return r.Start.EnvTag // what its processes have; the data directory may have another path now
	}
	if a.mode == modeContainer {
		sum := sha256.Sum256([]byte("mark\n" + a.base))
		return "MUSTER_MARK=" + hex.EncodeToString(sum[:16])
	}
	return "MUSTER_OUT=" + a.outDir()
}

// teardown removes what was created for the attempt. The report must be saved before: after a crash in between, the worker does
// not collect the outputs again.
func (a *Attempt) teardown(ctx context.Context, r *muster.Report) {
	if a.container != nil && !a.removalStarted {
		a.removeContainer(context.WithoutCancel(ctx), removeTimeout)
	}
	a.removal.Wait()
	if a.executor.deps.Isolator != nil && a.isolation != nil {
		a.executor.deps.Isolator.Release(a.isolation)
	}
	if a.checkpoint != "" {
		// All members of a gang restart together, also those that succeeded.
		done := r.Outcome == muster.AttemptSucceeded && a.Task.Gang == nil || a.Task.Fresh
		a.executor.checkpoints.release(checkpointName(a.Task), done, time.Now())
	}
	if a.base != "" {
		if err := a.folderPool().release(a.base); err != nil {
			a.executor.deps.Log.Warn("removing a task's folder failed", slog.String("folder", a.base), slog.Any("error", err))
		}
	}
}

// fetchInputs fetches the project's folder and the artifacts of other tasks into the task's folder.
func (a *Attempt) fetchInputs(ctx context.Context) error {
	if a.Task.Spec.Files != "" {
		a.SetStep("fetching the project's files")
		if err := a.fetchFiles(ctx, a.Dir); err != nil {
			return err
		}
	}
	if stdin := a.Task.Spec.Stdin; stdin != "" {
		if err := a.fetchStdin(ctx, stdin); err != nil {
			return err
		}
	}
	if len(a.Task.Inputs) == 0 {
		return nil
	}
	root, err := a.OpenRoot()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for i, in := range a.Task.Inputs {
		if !filepath.IsLocal(filepath.FromSlash(in.Path)) || in.Path == "." {
			return run.Failf(muster.TaskInvalid, "input %q is outside the task's folder", in.Path)
		}
		a.SetStep(fmt.Sprintf("fetching input %d of %d: %s", i+1, len(a.Task.Inputs), in.Path))
		if parent := path.Dir(in.Path); parent != "." {
			if err := root.MkdirAll(filepath.FromSlash(parent), 0o700); err != nil {
				return run.Failf(muster.TaskInvalid, "create the folder of input %s: %w", in.Path, err)
			}
		}
		switch err := root.Remove(filepath.FromSlash(in.Path)); {
		case err == nil:
			a.LogLine(fmt.Sprintf("input %s replaces the project's file with the same name", in.Path))
		case !errors.Is(err, fs.ErrNotExist):
			return run.Failf(muster.TaskInvalid, "input %s cannot replace an existing path: %w", in.Path, err)
		}
		if err := a.executor.deps.Transfer.Fetch(ctx, in.SHA256, in.Size, filepath.Join(a.Dir, filepath.FromSlash(in.Path))); err != nil {
			return run.Failf(muster.FetchFailed, "fetch input %s: %w", in.Path, err)
		}
	}
	return nil
}

// fetchFiles writes the project's folder to an empty folder.
func (a *Attempt) fetchFiles(ctx context.Context, dir string) error {
	hash, ok := strings.CutPrefix(a.Task.Spec.Files, "sha256:")
	if !ok {
		return run.Failf(muster.TaskInvalid, "files %q is not a hash of uploaded files: submit the job with the muster command line", a.Task.Spec.Files)
	}
	if err := a.executor.deps.Transfer.FetchTree(ctx, hash, dir); err != nil {
		reason := muster.FetchFailed
		if failed, ok := errors.AsType[*run.TaskError](err); ok {
			reason = failed.Reason // such as TaskInvalid: another worker gets the same list of files
		}
		return run.Failf(reason, "fetch the project's files: %w", err)
	}
	return nil
}

// fetchStdin fetches the standard input to stdinPath.
func (a *Attempt) fetchStdin(ctx context.Context, name string) error {
	hash, ok := strings.CutPrefix(name, "sha256:")
	if !ok {
		return run.Failf(muster.TaskInvalid, "stdin %q is not a hash of an uploaded file: submit the job with the muster command line", name)
	}
	a.SetStep("fetching standard input")
	if err := a.executor.deps.Transfer.Fetch(ctx, hash, -1, a.stdinPath()); err != nil {
		return run.Failf(muster.FetchFailed, "fetch standard input: %w", err)
	}
	if err := os.Chmod(a.stdinPath(), 0o644); err != nil { //nolint:gosec // containers of any user read it; the folder around it is private
		return run.Failf(muster.WorkerInternal, "open standard input to the task's user: %w", err)
	}
	return nil
}

// stdinPath returns the path of the file that is the standard input; "" if it is empty.
func (a *Attempt) stdinPath() string {
	if a.Task.Spec.Stdin == "" {
		return ""
	}
	return filepath.Join(a.base, stdinName)
}

// stdinName is the name of the file with the standard input in the attempt's folder.
const stdinName = "stdin"

const maxPooled = 64

// folderPool creates and removes the folders of attempts. It reuses those in which a task left no file: for small tasks, creating
// and removing folders costs more than everything else. Its methods may be called concurrently.
type folderPool struct {
	dir     string   // of the pooled folders
	name    string   // prefix of their names, before a number
	subdirs []string // the folders in each

	mu     sync.Mutex
	pooled []string
	number int
}

// removeLeftovers removes the pooled folders of earlier incarnations.
func (f *folderPool) removeLeftovers() error {
	old, err := filepath.Glob(filepath.Join(f.dir, f.name+"*"))
	for _, path := range old {
		err = errors.Join(err, run.RemoveAll(path))
	}
	return err
}

// acquire creates an attempt's folder with its empty subfolders.
func (f *folderPool) acquire(base string) error {
	if path := f.pop(); path != "" {
		if os.Rename(path, base) == nil {
			return nil
		}
		f.push(path)
	}
	err := os.Mkdir(base, 0o700)
	if errors.Is(err, fs.ErrExist) {
		// An earlier incarnation of the worker was killed before its cleanup.
		if err = run.RemoveAll(base); err == nil {
			err = os.Mkdir(base, 0o700)
		}
	}
	for _, subdir := range f.subdirs {
		if err == nil {
			err = os.Mkdir(filepath.Join(base, subdir), 0o700)
		}
	}
	return err
}

func (f *folderPool) release(base string) error {
	if f.recycle(base) {
		return nil
	}
	return run.RemoveAll(base)
}

// recycle moves an empty folder to the pool and reports whether it did.
func (f *folderPool) recycle(base string) bool {
	if !pristine(base, f.subdirs) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pooled) >= maxPooled {
		return false
	}
	f.number++
	path := filepath.Join(f.dir, f.name+strconv.Itoa(f.number))
	if os.Rename(base, path) != nil {
		return false
	}
	f.pooled = append(f.pooled, path)
	return true
}

func (f *folderPool) pop() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pooled) == 0 {
		return ""
	}
	path := f.pooled[len(f.pooled)-1]
	f.pooled = f.pooled[:len(f.pooled)-1]
	return path
}

func (f *folderPool) push(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pooled = append(f.pooled, path)
}
