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

// fetchInputs brings the project's folder and the artifacts of other tasks.
func (a *Attempt) fetchInputs(ctx context.Context) error {
	if files := a.Task.Spec.Files; files != "" {
		hash, ok := strings.CutPrefix(files, "sha256:")
		if !ok {
			return run.Failf(muster.TaskInvalid, "files is %q, which is not on the server: submit the job with the muster command line", files)
		}
		a.SetStep("fetching the project's files")
		if err := a.executor.deps.Transfer.FetchTree(ctx, hash, a.Dir); err != nil {
			return run.Failf(muster.FetchFailed, "the project's files could not be fetched: %w", err)
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
			return run.Failf(muster.TaskInvalid, "the input %q would lie outside the task's folder", in.Path)
		}
		a.SetStep(fmt.Sprintf("fetching input %d of %d: %s", i+1, len(a.Task.Inputs), in.Path))
		if parent := path.Dir(in.Path); parent != "." {
			if err := root.MkdirAll(filepath.FromSlash(parent), 0o700); err != nil {
				return run.Failf(muster.TaskInvalid, "no folder can be made for the input %s: %w", in.Path, err)
			}
		}
		switch err := root.Remove(filepath.FromSlash(in.Path)); {
		case err == nil:
			a.LogLine(fmt.Sprintf("the input %s replaces the file of that name in the project's folder", in.Path))
		case !errors.Is(err, fs.ErrNotExist):
			return run.Failf(muster.TaskInvalid, "the input %s cannot take the place of what is there: %w", in.Path, err)
		}
		if err := a.executor.deps.Transfer.Fetch(ctx, in.SHA256, in.Size, filepath.Join(a.Dir, filepath.FromSlash(in.Path))); err != nil {
			return run.Failf(muster.FetchFailed, "the input %s could not be fetched: %w", in.Path, err)
		}
	}
	return nil
}
