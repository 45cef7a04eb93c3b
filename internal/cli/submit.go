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
	"github.com/muster-dev/muster/internal/cli/follow"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/kind"
)

type submitConfig struct {
	remote.Remote
	frame.Format
	follow bool
}

func (c *submitConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "follow", Short: "f", Usage: "show the output of the jobs and end with the exit status of the first that fails"}.On(&c.follow),
	}, c.Format.Flags(), c.Remote.Flags())
}

func (a *app) submitCommand() *cli.Command {
	c := &submitConfig{}
	return a.Command(frame.Command{
		Name: "submit", Usage: "submit job specs", Args: "FILE…", Category: frame.Submit, Flags: c.flags(),
		About: "A file is YAML or JSON and may hold several documents; - means standard input. What a spec names of this machine " +
			"(script.file, files) is found relative to its file and travels with the job. If anything is wrong in any file, nothing is submitted.",
		Run: func(ctx context.Context, args []string) error { return a.submit(ctx, c, args) },
	})
}

func (a *app) submit(ctx context.Context, c *submitConfig, args []string) error {
	if c.follow && !c.People() {
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
			a.Say("job %s: %s", job.ID, term.Clean(job.Name))
			err := follow.Follow(ctx, a.App, server, job, follow.Left, sigs)
			if _, ended := errors.AsType[*frame.StatusError](err); err != nil && !ended {
				return err
			}
			if first == nil {
				first = err
			} else if err != nil {
				a.Complain(err)
			}
		}
		return first
	}
	return frame.ShowSome(a.App, c.Format, jobs, func(j muster.Job) string { return j.ID.String() }, func(j muster.Job) error {
		tasks := "1 task"
		if n := j.Counts.Total(); n != 1 {
			tasks = fmt.Sprintf("%d tasks", n)
		}
		_, err := fmt.Fprintf(a.Out, "job %s: %s, %s\n", j.ID, term.Clean(j.Name), tasks)
		return err
	})
}

// submitAll brings the folders of all documents to the server and then submits
// the documents. SIGINT ends it between two requests that make a job: what was asked for is known to be done or not.
func (a *app) submitAll(ctx context.Context, server *client.Client, docs []document) ([]muster.Job, error) {
	ctx, hurried, stop := frame.InSteps(ctx)
	defer stop()
	for _, doc := range docs {
		if len(docs) > 1 && doc.needsServer() {
			if _, err := a.planned(ctx, server, doc); err != nil {
				return nil, err
			}
		}
	}
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
		job, err := muster.Job{}, ctx.Err()
		if err == nil {
			err = a.Answered(ctx, func() error {
				job, err = server.Submit(hurried, doc.spec, client.SubmitOptions{})
				return err
			})
		}
		if err != nil {
			if len(jobs) > 0 {
				var ids []string
				for _, j := range jobs {
					ids = append(ids, j.ID.String())
				}
				a.Say("submitted before that: %s", strings.Join(ids, ", "))
			}
			return nil, a.refused(ctx, doc, err)
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// needsServer reports whether only a server knows if the document is right: it has a stage of a kind that takes an input.
func (d document) needsServer() bool {
	return slices.ContainsFunc(d.spec.Normalize().Tasks, func(t muster.TaskSpec) bool { return !slices.Contains(kind.Core(), t.Kind) })
}

func (a *app) upload(ctx context.Context, server *client.Client, dir string) (string, error) {
	bar := frame.NewBytesBar("uploading "+filepath.Base(dir), -1)
	var name string
	err := a.Underway(ctx, bar.Line, func(ctx context.Context) error {
		var err error
		name, err = server.UploadFolder(ctx, dir, func(p client.UploadProgress) {
			bar.Total.Store(p.ToSend)
			bar.Done.Store(p.Sent)
		})
		return err
	})
	return name, err
}
