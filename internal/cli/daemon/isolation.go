package daemon

import (
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/cli/app"
)

// isolationOptions is how a worker holds its tasks.
type isolationOptions struct {
	limits  isolation.Config
	sandbox string
}

func newIsolationOptions() isolationOptions { return isolationOptions{sandbox: string(isolation.Auto)} }

func (c *isolationOptions) flags(group string) []cli.Flag {
	l := &c.limits
	return []cli.Flag{
		app.Option{Name: "task-user", Usage: "run tasks as this `USER`, if the worker is run by root; root lets them be root (default: each task as a user of its own)", Group: group}.WithEnv().StringVar(&l.TaskUser),
		app.Option{Name: "sandbox", Usage: "keep tasks to their own files: `WHEN` the kernel can (auto), never (off), or not without it (strict)", Group: group}.
			WithEnv().EnumVar(&c.sandbox, string(isolation.Auto), string(isolation.Off), string(isolation.Strict)),
		app.Option{Name: "allow-read", Usage: "let tasks read this `PATH` besides the system's; may be repeated", Group: group}.RepeatedVar(&l.Read),
		app.Option{Name: "allow-write", Usage: "let tasks change this `PATH` besides their own folders; may be repeated", Group: group}.RepeatedVar(&l.Write),
		app.Option{Name: "task-pids", Usage: "let a task that names no pids have this `NUMBER` of processes and threads (default: 4096)", Group: group}.
			WithEnv().IntVar(&l.PIDs, 1, 1<<22),
	}
}

// config returns what was asked for, with paths from where the command was given.
func (c *isolationOptions) config() (isolation.Config, error) {
	cfg := c.limits
	cfg.Sandbox = isolation.Mode(c.sandbox)
	for _, list := range []*[]string{&cfg.Read, &cfg.Write} {
		abs := make([]string, len(*list))
		for i, path := range *list {
			var err error
			if abs[i], err = filepath.Abs(path); err != nil {
				return cfg, muster.Errorf(muster.Invalid, "%s has no absolute path: %w", path, err)
			}
		}
		*list = abs
	}
	return cfg, nil
}
