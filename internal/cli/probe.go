package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/cli/frame"
)

type probeConfig struct {
	frame.Format
	data string
}

func (c *probeConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		frame.Option{Name: "data", Usage: "look at the disk of this `FOLDER` (default: muster/worker in the user's data folder)"}.Variable().Text(&c.data),
	}, c.Flags())
}

func (a *app) probeCommand() *cli.Command {
	c := &probeConfig{}
	return a.Command(frame.Command{
		Name: "probe", Usage: "say what this machine would offer as a worker", Category: frame.SetUp, Flags: c.flags(),
		Run: func(ctx context.Context, args []string) error {
			if err := frame.NoArgs(args); err != nil {
				return err
			}
			return a.probe(ctx, c)
		},
	})
}

func (a *app) probe(ctx context.Context, c *probeConfig) error {
	ctx, stop := frame.Interruptible(ctx)
	defer stop()
	dir, err := dataFolder(c.data, "worker")
	if err != nil {
		return err
	}
	found, err := probe.Run(ctx, dir)
	if err != nil {
		return err
	}
	return a.Show(c.Format, found, []string{found.Hostname}, func() error {
		f := frame.Facts{App: a.App}
		f.Add("host", found.Hostname)
		f.Add("system", strings.Join(frame.NonEmpty([]string{found.System.OS, found.System.Arch, found.System.Kernel}), " "))
		f.Add("processor", fmt.Sprintf("%g cores %s", found.CPU.Count, found.CPU.Model))
		f.Add("memory", found.Memory.String())
		f.Add("disk", fmt.Sprintf("%s free at %s", found.Disk.Free, dir))
		for _, g := range found.GPUs {
			f.Add("gpu", fmt.Sprintf("%d: %s, %s (%s)", g.Index, g.Name, g.Memory, g.UUID))
		}
		if len(found.GPUs) == 0 {
			f.Add("gpu", "none")
		}
		f.Add("python", found.Python)
		f.Add("tags", strings.Join(found.Tags, " "))
		r := found.Resources
		f.Add("offers", fmt.Sprintf("%g cpus, %d slots, %s memory, %s disk, %d gpus", r.CPUs, r.Slots, r.Memory, r.Disk, len(r.GPUs)))
		for _, note := range found.Notes {
			f.Add("note", note)
		}
		return f.Draw()
	})
}
