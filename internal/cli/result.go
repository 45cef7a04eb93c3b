package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
)

type resultConfig struct {
	remote.ServerOptions
	output string
}

func (c *resultConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "output", Short: "o", Usage: "write a `FORMAT`: json or yaml", Group: "Output"}.EnumVar(&c.output, "json", "yaml"),
	}, c.Flags())
}

func (a *runner) resultCommand() *cli.Command {
	c := &resultConfig{}
	return a.NewCommand(app.Command{
		Name: "result", Usage: "print the results of tasks: what they left in result.json", Args: "JOB|TASK…", Category: app.CategoryResults, Flags: c.flags(),
		Description: "The result of one task is printed as it is, those of several as an object with the tasks' numbers.",
		Run:         func(ctx context.Context, args []string) error { return a.result(ctx, c, args) },
	})
}

func (a *runner) result(ctx context.Context, c *resultConfig, args []string) error {
	server, err := c.Connect()
	if err != nil {
		return err
	}
	sels, err := remote.ResolveSelectors(ctx, server, args)
	if err != nil {
		return err
	}
	object, tasks := bytes.NewBufferString("{"), 0
	var only muster.Task
	var last json.RawMessage
	for t, err := range remote.Tasks(ctx, server, sels, nil) {
		if err != nil {
			return err
		}
		tasks++
		only = t
		if len(t.Result) == 0 {
			continue
		}
		if object.Len() > 1 {
			object.WriteByte(',')
		}
		object.WriteString(`"` + t.ID.String() + `":`)
		object.Write(t.Result)
		last = t.Result
	}
	object.WriteByte('}')
	switch {
	case tasks == 1 && last == nil && !only.State.Final():
		return muster.Errorf(muster.NotFound, "task %s is %s and has no result yet: see muster wait %s", only.ID, only.State, only.ID)
	case last == nil:
		return muster.Errorf(muster.NotFound, "no task of %s left a result.json", args[0])
	case tasks > 1:
		last = object.Bytes()
	}
	f := app.OutputOptions{Output: c.output}
	if f.Output == "" {
		f.Output = "json"
	}
	return a.Print(f, last, nil, nil)
}
