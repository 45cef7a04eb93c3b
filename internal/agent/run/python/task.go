package python

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// GetFor is Get for the python section of a spec. Its files are read from root.
func (e *Envs) GetFor(ctx context.Context, p *muster.Python, root *os.Root, observer run.Observer) (string, error) {
	spec, err := ParseSpec(p, func(name string) ([]byte, error) {
		f, err := run.OpenRegularIn(root, filepath.FromSlash(name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, run.Failf(muster.Dependency, "%s does not exist in the task's folder: set files to the folder that contains it", name)
		}
		if err != nil {
			return nil, run.Failf(muster.Dependency, "read %s: %w", name, err)
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxRequirements+1))
		if err == nil && len(b) > maxRequirements {
			err = fmt.Errorf("it is larger than %s", muster.Size(maxRequirements))
		}
		if err != nil {
			return nil, run.Failf(muster.Dependency, "read %s: %w", name, err)
		}
		return b, nil
	})
	if err != nil {
		return "", err
	}
	return e.GetSpec(ctx, spec, observer)
}

// GetSpec is Get for a spec. Its environment belongs to the interpreter that uv finds for it.
func (e *Envs) GetSpec(ctx context.Context, spec Spec, observer run.Observer) (string, error) {
	uv, err := e.tool.find(ctx, observer)
	if err != nil {
		return "", err
	}
	interpreter, err := e.findInterpreter(ctx, uv, spec.Version, observer)
	if err != nil {
		return "", err
	}
	name, err := spec.key(interpreter)
	if err != nil {
		return "", err
	}
	return e.Get(ctx, Request{Name: name, Title: "python environment", Spec: func(context.Context) *Spec { return &spec }}, observer)
}
