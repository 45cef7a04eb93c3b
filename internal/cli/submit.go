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
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/follow"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/kind"
)

type submitConfig struct {
	remote.ServerOptions
	app.OutputOptions
	follow bool
}

func (c *submitConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "follow", Short: "f", Usage: "show the output of the jobs and end with the exit status of the first that fails"}.BoolVar(&c.follow),
	}, c.OutputOptions.Flags(), c.ServerOptions.Flags())
}

func (a *runner) submitCommand() *cli.Command {
	c := &submitConfig{}
	return a.NewCommand(app.Command{
		Name: "submit", Usage: "submit job specs", Args: "FILE…", Category: app.CategorySubmit, Flags: c.flags(),
		Description: "A file is YAML or JSON and may hold several documents; - means standard input. What a spec names of this machine " +
			"(script.file, files) is found relative to its file and travels with the job. If anything is wrong in any file, nothing is submitted.",
		Run: func(ctx context.Context, args []string) error { return a.submit(ctx, c, args) },
	})
}

func (a *runner) submit(ctx context.Context, c *submitConfig, args []string) error {
	if c.follow && !c.Human() {
		return muster.Errorf(muster.Invalid, "--follow shows the output of the tasks: leave --output and --quiet out")
	}
	docs, err := a.loadSpecs(ctx, args)
	if err != nil {
		return err
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	sigs, release := follow.Signals()
	defer release()
	jobs, err := a.submitAll(ctx, server, docs)
	if err != nil {
		return err
	}
	if c.follow {
		var first error
		for _, job := range jobs {
			a.Messagef("job %s: %s", job.ID, term.Sanitize(job.Name))
			err := follow.Follow(ctx, a.App, server, job, follow.SummaryFull, sigs)
			if _, ended := errors.AsType[*app.StatusError](err); err != nil && !ended {
				return err
			}
			if first == nil {
				first = err
			} else if err != nil {
				a.PrintError(err)
			}
		}
		return first
	}
	return app.PrintItems(a.App, c.OutputOptions, jobs, func(j muster.Job) string { return j.ID.String() }, func(j muster.Job) error {
		tasks := "1 task"
		if n := j.Counts.Total(); n != 1 {
			tasks = fmt.Sprintf("%d tasks", n)
		}
		_, err := fmt.Fprintf(a.Out, "job %s: %s, %s\n", j.ID, term.Sanitize(j.Name), tasks)
		return err
	})
}

// submitAll brings the folders of all documents to the server and then submits
// the documents. SIGINT ends it between two requests that make a job: what was asked for is known to be done or not.
func (a *runner) submitAll(ctx context.Context, server *client.Client, docs []document) ([]muster.Job, error) {
	ctx, forceCtx, stop := app.ShutdownContexts(ctx)
	defer stop()
	for _, doc := range docs {
		if len(docs) > 1 && doc.needsServerValidation() {
			if _, err := a.planDocument(ctx, server, doc); err != nil {
				return nil, err
			}
		}
	}
	uploaded := map[string]string{} // folder → what stands for it in a spec
	for _, doc := range docs {
		for i := range doc.spec.Tasks {
			t := &doc.spec.Tasks[i]
			if !isLocalDir(t.Files) {
				continue
			}
			dir := doc.resolve(t.Files)
			if uploaded[dir] == "" {
				var err error
				if uploaded[dir], err = a.uploadDir(ctx, server, dir); err != nil {
					return nil, err
				}
			}
			t.Files = uploaded[dir]
		}
	}
	var jobs []muster.Job
	for _, doc := range docs {
		job, err := muster.Job{}, ctx.Err()
		if err == nil {
			err = a.WaitForResponse(ctx, func() error {
				job, err = server.Submit(forceCtx, doc.spec, client.SubmitOptions{})
				return err
			})
		}
		if err != nil {
			if len(jobs) > 0 {
				var ids []string
				for _, j := range jobs {
					ids = append(ids, j.ID.String())
				}
				a.Messagef("submitted before that: %s", strings.Join(ids, ", "))
			}
			return nil, a.locateErrors(ctx, doc, err)
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// needsServerValidation reports whether only a server knows if the document is right: it has a stage of a kind that takes an input.
func (d document) needsServerValidation() bool {
	return slices.ContainsFunc(d.spec.Normalize().Tasks, func(t muster.TaskSpec) bool { return !slices.Contains(kind.Core(), t.Kind) })
}

func (a *runner) uploadDir(ctx context.Context, server *client.Client, dir string) (string, error) {
	bar := app.NewTransferBar("uploading "+filepath.Base(dir), -1)
	var name string
	err := a.RunWithStatus(ctx, bar.Line, func(ctx context.Context) error {
		var err error
		name, err = server.UploadFolder(ctx, dir, func(p client.UploadProgress) {
			bar.Total.Store(p.ToSend)
			bar.Done.Store(p.Sent)
		})
		return err
	})
	return name, err
}
