package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type planConfig struct {
	remote.ServerOptions
	app.OutputOptions
}

func (c *planConfig) flags() []cli.Flag {
	return slices.Concat(c.OutputOptions.Flags(), c.ServerOptions.Flags())
}

func (a *runner) planCommand() *cli.Command {
	c := &planConfig{}
	return a.NewCommand(app.Command{
		Name: "plan", Usage: "check job specs and say where their tasks would run, without running them", Args: "FILE…", Category: app.CategorySubmit, Flags: c.flags(),
		Run: func(ctx context.Context, args []string) error { return a.plan(ctx, c, args) },
	})
}

// jobPlan is a document and where the first task of each stage would run.
type jobPlan struct {
	Name   string               `json:"name"`
	Stages []muster.Explanation `json:"stages"`
}

// planDocument asks the server what it would do with a document.
func (a *runner) planDocument(ctx context.Context, server *client.Client, doc document) (jobPlan, error) {
	spec := doc.spec.Normalize() // before its folders are left out: they decide the kind
	for i := range spec.Tasks {
		if isLocalDir(spec.Tasks[i].Files) {
			spec.Tasks[i].Files = ""
		}
	}
	stages, err := server.Plan(ctx, spec)
	if err != nil {
		err = a.locateErrors(ctx, doc, err)
	}
	return jobPlan{Name: spec.Name, Stages: stages}, err
}

func (a *runner) plan(ctx context.Context, c *planConfig, args []string) error {
	docs, err := a.loadSpecs(ctx, args)
	if err != nil {
		return err
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	all := make([]jobPlan, len(docs))
	for i, doc := range docs {
		if all[i], err = a.planDocument(ctx, server, doc); err != nil {
			return err
		}
	}
	return app.PrintItems(a.App, c.OutputOptions, all, func(p jobPlan) string { return p.Name }, app.WithBlankLines(a.App, func(p jobPlan) error {
		fmt.Fprintln(a.Out, a.Out.Paint(term.Bold, term.Sanitize(p.Name)))
		for _, x := range p.Stages {
			if err := a.drawExplanation(explanationView{Explanation: x}, c.Wide()); err != nil {
				return err
			}
		}
		return nil
	}))
}
