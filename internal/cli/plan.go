package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/sched/explain"
)

type planConfig struct {
	remote.Remote
	frame.Format
}

func (c *planConfig) flags() []cli.Flag { return slices.Concat(c.Format.Flags(), c.Remote.Flags()) }

func (a *app) planCommand() *cli.Command {
	c := &planConfig{}
	return a.Command(frame.Command{
		Name: "plan", Usage: "check job specs and say where their tasks would run, without running them", Args: "FILE…", Category: frame.Submit, Flags: c.flags(),
		Run: func(ctx context.Context, args []string) error { return a.plan(ctx, c, args) },
	})
}

// planned is a document and where the first task of each stage would run.
type planned struct {
	Name   string                `json:"name"`
	Stages []explain.Explanation `json:"stages"`
}

// planned asks the server what it would do with a document.
func (a *app) planned(ctx context.Context, server *client.Client, doc document) (planned, error) {
	spec := doc.spec.Normalize() // before its folders are left out: they decide the kind
	for i := range spec.Tasks {
		if isLocal(spec.Tasks[i].Files) {
			spec.Tasks[i].Files = ""
		}
	}
	stages, err := server.Plan(ctx, spec)
	if err != nil {
		err = a.refused(ctx, doc, err)
	}
	return planned{Name: spec.Name, Stages: stages}, err
}

func (a *app) plan(ctx context.Context, c *planConfig, args []string) error {
	docs, err := a.loadSpecs(ctx, args)
	if err != nil {
		return err
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	all := make([]planned, len(docs))
	for i, doc := range docs {
		if all[i], err = a.planned(ctx, server, doc); err != nil {
			return err
		}
	}
	return frame.ShowSome(a.App, c.Format, all, func(p planned) string { return p.Name }, frame.Apart(a.App, func(p planned) error {
		fmt.Fprintln(a.Out, a.Out.Paint(term.Bold, term.Clean(p.Name)))
		for _, x := range p.Stages {
			if err := a.drawExplanation(explained{Explanation: x}, c.Wide()); err != nil {
				return err
			}
		}
		return nil
	}))
}
