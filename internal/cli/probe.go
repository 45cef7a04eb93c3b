package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/agent/probe"
)

type probeConfig struct {
	format
	data string
}

func (c *probeConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		option{name: "data", usage: "look at the disk of this `FOLDER` (default: muster/worker in the user's data folder)"}.variable().text(&c.data),
	}, c.format.flags())
}

func (a *app) probeCommand() *cli.Command {
	c := &probeConfig{}
	return a.command(command{
		name: "probe", usage: "say what this machine would offer as a worker", category: setUp, flags: c.flags(),
		run: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			return a.probe(ctx, c)
		},
	})
}

func (a *app) probe(ctx context.Context, c *probeConfig) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	dir, err := dataFolder(c.data, "worker")
	if err != nil {
		return err
	}
	found, err := probe.Run(ctx, dir)
	if err != nil {
		return err
	}
	return a.show(c.format, found, []string{found.Hostname}, func() error {
		f := facts{app: a}
		f.add("host", found.Hostname)
		f.add("system", strings.Join(nonEmpty([]string{found.System.OS, found.System.Arch, found.System.Kernel}), " "))
		f.add("processor", fmt.Sprintf("%g cores %s", found.CPU.Count, found.CPU.Model))
		f.add("memory", found.Memory.String())
		f.add("disk", fmt.Sprintf("%s free at %s", found.Disk.Free, dir))
		for _, g := range found.GPUs {
			f.add("gpu", fmt.Sprintf("%d: %s, %s (%s)", g.Index, g.Name, g.Memory, g.UUID))
		}
		if len(found.GPUs) == 0 {
			f.add("gpu", "none")
		}
		f.add("python", found.Python)
		f.add("tags", strings.Join(found.Tags, " "))
		r := found.Resources
		f.add("offers", fmt.Sprintf("%g cpus, %d slots, %s memory, %s disk, %d gpus", r.CPUs, r.Slots, r.Memory, r.Disk, len(r.GPUs)))
		for _, note := range found.Notes {
			f.add("note", note)
		}
		return f.draw()
	})
}
