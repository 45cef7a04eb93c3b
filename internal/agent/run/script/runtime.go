package script

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/python"
)

const maxRequirements = 1 << 20

type runtimes struct{ envs *python.Envs }

// buildVenv returns the folder of the environment that the spec asks for.
func (r *runtimes) buildVenv(ctx context.Context, a *process.Attempt) (string, error) {
	root, err := a.OpenRoot()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	readFile := func(name string) ([]byte, error) {
		f, err := root.Open(filepath.FromSlash(name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, run.Failf(muster.Dependency, "%s does not exist in the task's folder: set files to the folder that contains it", name)
		}
		if err != nil {
			return nil, run.Failf(muster.Dependency, "%s cannot be read: %w", name, err)
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxRequirements+1))
		if err != nil {
			return nil, run.Failf(muster.Dependency, "%s cannot be read: %w", name, err)
		}
		if len(b) > maxRequirements {
			return nil, run.Failf(muster.Dependency, "%s is larger than %s", name, muster.Size(maxRequirements))
		}
		return b, nil
	}
	pySpec, err := python.ParseSpec(a.Task.Spec.Python, readFile)
	if err != nil {
		return "", err
	}
	return r.envs.Get(ctx, pySpec, run.Observer{Step: a.SetStep, LogLine: a.LogLine})
}
