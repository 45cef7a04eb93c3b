package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
)

type runConfig struct {
	remote
	detach   bool
	shell    bool
	project  string
	name     string
	priority int
	labels   map[string]string
	array    muster.Array
	task     muster.TaskSpec
	python   muster.Python
}

func (c *runConfig) flags() []cli.Flag {
	t := &c.task
	const needs, place, life, data = "What it needs", "Where it runs", "How long and how often", "Files"
	return slices.Concat([]cli.Flag{
		option{name: "detach", short: "d", usage: "print the job's number and do not wait for it"}.on(&c.detach),
		option{name: "shell", short: "c", usage: "the command is one text for sh -c"}.on(&c.shell),
		option{name: "name", usage: "the job's `NAME`"}.text(&c.name),
		option{name: "project", short: "p", usage: "the job's `PROJECT`"}.variable().text(&c.project),
		option{name: "priority", usage: "a `NUMBER` from 0 to 100, higher first"}.number(&c.priority, muster.MinPriority, muster.MaxPriority),
		option{name: "label", usage: "label the job with `NAME=VALUE`; may be repeated"}.pairs(&c.labels),
		option{name: "env", short: "e", usage: "set a variable for the task, `NAME=VALUE`; may be repeated"}.pairs(&t.Env),
		into(option{name: "array", usage: "run many tasks, one for each of these `NUMBERS`, such as 0-9 or 1,3,10-30:5; each finds its own in $MUSTER_INDEX"},
			&c.array, muster.ParseArray, muster.Array.String),
		option{name: "kind", usage: "the `KIND` of task: process, script, noop (default: what fits)"}.text(&t.Kind),

		option{name: "cpus", usage: "processor `CORES`, such as 0.5 or 8", group: needs}.decimal(&t.Resources.CPUs, 1<<20),
		option{name: "memory", short: "m", usage: "main memory in `BYTES`, such as 4GiB", group: needs}.size(&t.Resources.Memory),
		option{name: "disk", usage: "disk space in `BYTES`, such as 10GiB", group: needs}.size(&t.Resources.Disk),
		option{name: "gpus", short: "g", usage: "this `NUMBER` of GPUs", group: needs}.number(&t.Resources.GPUs.Count, 0, 1<<16),
		option{name: "gpu-memory", usage: "memory that each GPU must have, in `BYTES`", group: needs}.size(&t.Resources.GPUs.Memory),
		option{name: "gpu-share", usage: "take only that much memory of each GPU and share the rest", group: needs}.on(&t.Resources.GPUs.Share),
		option{name: "gpu-vendor", usage: "only GPUs of this `VENDOR`: nvidia, amd, intel or apple", group: needs}.text(&t.Resources.GPUs.Vendor),
		option{name: "gpu-model", usage: "only GPUs with this `TEXT` in their name, such as A100", group: needs}.text(&t.Resources.GPUs.Model),

		option{name: "tags", usage: "only on workers with all of these `TAGS`", group: place}.list(&t.Where.Tags),
		option{name: "not", usage: "never on workers with one of these `TAGS`", group: place}.list(&t.Where.Not),
		option{name: "worker", usage: "only on these `WORKERS`, by name or id", group: place}.list(&t.Where.Workers),
		option{name: "max-price", usage: "only on workers up to this `PRICE` an hour", group: place}.decimal(&t.Where.MaxPrice, 1e9),

		option{name: "timeout", usage: "stop an attempt after this `DURATION`, such as 90s or 2h", group: life}.duration(&t.Timeout),
		option{name: "queue-timeout", usage: "give up if it has not started after this `DURATION`", group: life}.duration(&t.QueueTimeout),
		option{name: "retries", usage: "try again up to `N` times if it fails", group: life}.number(&t.Retries.Max, 0, 1<<20),
		option{name: "retry-on", usage: "only after these `REASONS`, such as exit:75 or out_of_memory", group: life}.list(&t.Retries.On),
		option{name: "kill-grace", usage: "leave this `DURATION` between the signal to stop and the kill", group: life}.duration(&t.Kill.Grace),

		option{name: "files", short: "f", usage: "bring this `FOLDER` along; the task runs in a copy of it", group: data}.text(&t.Files),
		option{name: "output", usage: "keep files that match this `GLOB` as artifacts, such as model.pt or 'plots/*.png'; may be repeated", group: data}.repeated(&t.Outputs),
		option{name: "python-requirements", usage: "this `FILE` in the folder of --files says what the task's Python environment has", group: data}.text(&c.python.Requirements),
		option{name: "python-package", usage: "a Python `PACKAGE` for the task's environment, such as 'numpy>=2'; may be repeated", group: data}.repeated(&c.python.Packages),
		option{name: "python-version", usage: "the `VERSION` of Python, such as 3.12", group: data}.text(&c.python.Version),
	}, c.remote.flags())
}

func (a *app) runCommand() *cli.Command {
	c := &runConfig{priority: muster.UsualPriority}
	return a.command(command{
		name: "run", usage: "run a command on the fleet, show its output and end with its exit code", args: "[--] CMD [ARG…]",
		category: submit, flags: c.flags(), stopAtFirst: true,
		about: "The exit status is the task's own; 124 if it timed out, 125 if the fleet is to blame, 130 if it was cancelled. " +
			"Ctrl-C asks whether to cancel the job or to leave it running. The command's standard input is empty.",
		run: func(ctx context.Context, args []string) error { return a.runTask(ctx, c, args) },
	})
}

func (a *app) runTask(ctx context.Context, c *runConfig, args []string) error {
	spec, err := c.spec(args)
	if err != nil {
		return err
	}
	server, err := c.connect()
	if err != nil {
		return err
	}
	doc := document{spec: spec, dir: "."}
	if fields := doc.check(); len(fields) > 0 {
		return &muster.Error{Code: muster.InvalidSpec, Message: "the job cannot be submitted:", Fields: fields}
	}
	jobs, err := a.submitAll(ctx, server, []document{doc})
	if err != nil {
		return err
	}
	if c.detach {
		return write(a.out, []byte(jobs[0].ID.String()+"\n"))
	}
	return a.follow(ctx, server, jobs[0])
}

// spec makes the job that the options describe.
func (c *runConfig) spec(args []string) (*muster.Spec, error) {
	t := c.task
	switch {
	case t.Kind == muster.KindNoop && len(args) > 0:
		return nil, muster.Errorf(muster.Invalid, "a noop task runs nothing: leave the command out")
	case t.Kind == muster.KindNoop:
	case len(args) == 0:
		return nil, muster.Errorf(muster.Invalid, "no command is given: write muster run [options] -- CMD ARG…")
	case c.shell && len(args) > 1:
		return nil, muster.Errorf(muster.Invalid, "--shell takes the command as one text, but there are %d: put quotes around all of it", len(args))
	case c.shell:
		t.Run = &muster.Command{Shell: args[0]}
	default:
		t.Run = &muster.Command{Argv: args}
	}
	if c.python.Requirements != "" && t.Files == "" {
		return nil, muster.Errorf(muster.Invalid, "--python-requirements names a file in the task's folder: bring the folder along with --files, such as --files .")
	}
	if c.python.Requirements != "" || len(c.python.Packages) > 0 || c.python.Version != "" {
		t.Python = &c.python
	}
	if len(c.array.Ranges) > 0 {
		t.Array = &c.array
	}
	name := c.name
	if name == "" && len(args) > 0 {
		name = shortName(args)
	}
	return &muster.Spec{Name: name, Project: c.project, Priority: &c.priority, Labels: c.labels, Tasks: []muster.TaskSpec{t}}, nil
}

// shortName is what a job is called after its command.
func shortName(args []string) string {
	const most = 40
	name := []rune(strings.Join(strings.Fields(strings.Join(args, " ")), " "))
	if len(name) > most {
		return fmt.Sprintf("%s…", string(name[:most-1]))
	}
	return string(name)
}
