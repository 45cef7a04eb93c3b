// Package script runs tasks of kind script: process tasks whose program is uploaded with the job or fetched by the worker, and that
// may ask for a Python environment.
package script

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/python"
)

// New returns the executor of the kind script.
func New(deps *process.Deps) (*process.Executor, error) {
	envs, err := python.New(&deps.Deps)
	if err != nil {
		return nil, err
	}
	p := &programs{fetch: newFetcher(deps.AllowPrivateURLs)}
	return process.NewKind(deps, muster.KindScript, process.KindHooks{Program: p.writeScript, Python: envs.GetFor})
}

type programs struct{ fetch *fetcher }

// writeScript writes the script into the task's folder and returns the command that
// runs it; nil if the spec has no script.
func (p *programs) writeScript(ctx context.Context, a *process.Attempt) ([]string, error) {
	s := a.Task.Spec.Script
	if s == nil {
		return nil, nil
	}
	text, name := []byte(s.Text), fileName(s.File)
	if s.URL != "" {
		a.SetStep("fetching the script")
		var err error
		if text, err = p.fetch.get(ctx, s.URL, s.SHA256); err != nil {
			return nil, err
		}
		name = fileName(urlPath(s.URL))
	}
	name, err := writeFile(a, name, text)
	if err != nil {
		return nil, err
	}
	return append(run.Interpreter(s, text, name), s.Args...), nil
}

// writeFile writes the script into the task's folder, beside the files of its project, and returns its name.
func writeFile(a *process.Attempt, name string, text []byte) (string, error) {
	root, err := a.OpenRoot()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if errors.Is(err, fs.ErrExist) {
		// Keep the project's file.
		name = ".muster-" + name
		f, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o700)
	}
	if err != nil {
		return "", run.Failf(muster.WorkerInternal, "write the script: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", run.Failf(muster.WorkerInternal, "write the script: %w", err)
	}
	return name, nil
}

// fileName converts a path to a plain file name.
func fileName(p string) string {
	base := path.Base(strings.ReplaceAll(p, "\\", "/"))
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-+", r) {
			return r
		}
		return '_'
	}, base)
	if len(clean) > 100 {
		clean = clean[len(clean)-100:] // the end has the suffix
	}
	if strings.Trim(clean, "._") == "" {
		return "script"
	}
	return clean
}
