package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type submitConfig struct {
	remote
	format
	follow bool
}

func (c *submitConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		option{name: "follow", short: "f", usage: "show the output of the jobs and end with the exit status of the first that fails"}.on(&c.follow),
	}, c.format.flags(), c.remote.flags())
}

func (a *app) submitCommand() *cli.Command {
	c := &submitConfig{}
	return a.command(command{
		name: "submit", usage: "submit job specs", args: "FILE…", category: submit, flags: c.flags(),
		about: "A file is YAML or JSON and may hold several documents; - means standard input. What a spec names of this machine " +
			"(script.file, files) is found relative to its file and travels with the job. If anything is wrong in any file, nothing is submitted.",
		run: func(ctx context.Context, args []string) error { return a.submit(ctx, c, args) },
	})
}

func (a *app) submit(ctx context.Context, c *submitConfig, args []string) error {
	if c.follow && !c.people() {
		return muster.Errorf(muster.Invalid, "--follow shows the output of the tasks: leave --output and --quiet out")
	}
	docs, err := a.loadSpecs(args)
	if err != nil {
		return err
	}
	server, err := c.connect()
	if err != nil {
		return err
	}
	jobs, err := a.submitAll(ctx, server, docs)
	if err != nil {
		return err
	}
	if c.follow {
		var first error
		for _, job := range jobs {
			a.say("job %s: %s", job.ID, term.Clean(job.Name))
			err := a.follow(ctx, server, job)
			if _, ended := errors.AsType[*statusError](err); err != nil && !ended {
				return err
			}
			if first == nil {
				first = err
			} else if err != nil {
				a.complain(err)
			}
		}
		return first
	}
	return showSome(a, c.format, jobs, func(j muster.Job) string { return j.ID.String() }, func(j muster.Job) error {
		tasks := "1 task"
		if n := j.Counts.Total(); n != 1 {
			tasks = fmt.Sprintf("%d tasks", n)
		}
		_, err := fmt.Fprintf(a.out, "job %s: %s, %s\n", j.ID, term.Clean(j.Name), tasks)
		return err
	})
}

// submitAll brings the folders of all documents to the server and then submits
// the documents.
func (a *app) submitAll(ctx context.Context, server *client.Client, docs []document) ([]muster.Job, error) {
	ctx, stop := interruptible(ctx)
	defer stop()
	uploaded := map[string]string{} // folder → what stands for it in a spec
	for _, doc := range docs {
		for i := range doc.spec.Tasks {
			t := &doc.spec.Tasks[i]
			if !isLocal(t.Files) {
				continue
			}
			dir := doc.path(t.Files)
			if uploaded[dir] == "" {
				var err error
				if uploaded[dir], err = a.upload(ctx, server, dir); err != nil {
					return nil, err
				}
			}
			t.Files = uploaded[dir]
		}
	}
	var jobs []muster.Job
	for _, doc := range docs {
		job, err := server.Submit(ctx, doc.spec, client.SubmitOptions{})
		if err != nil {
			if len(jobs) > 0 {
				var ids []string
				for _, j := range jobs {
					ids = append(ids, j.ID.String())
				}
				a.say("submitted before that: %s", strings.Join(ids, ", "))
			}
			return nil, err
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

func (a *app) upload(ctx context.Context, server *client.Client, dir string) (string, error) {
	bar := newBytesBar("uploading "+filepath.Base(dir), -1)
	var name string
	err := a.underway(ctx, bar.line, func(ctx context.Context) error {
		var err error
		name, err = server.UploadFolder(ctx, dir, func(p client.UploadProgress) {
			bar.total.Store(p.Todo)
			bar.done.Store(p.Sent)
		})
		return err
	})
	return name, err
}
