package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// fetchInputs fetches the project's folder and the artifacts of other tasks into the task's folder.
func (a *Attempt) fetchInputs(ctx context.Context) error {
	if files := a.Task.Spec.Files; files != "" {
		hash, ok := strings.CutPrefix(files, "sha256:")
		if !ok {
			return run.Failf(muster.TaskInvalid, "files %q is not a hash of uploaded files: submit the job with the muster command line", files)
		}
		a.SetStep("fetching the project's files")
		if err := a.executor.deps.Transfer.FetchTree(ctx, hash, a.Dir); err != nil {
			return run.Failf(muster.FetchFailed, "fetch the project's files: %w", err)
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
