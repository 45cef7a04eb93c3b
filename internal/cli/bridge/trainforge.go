package bridge

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/dialect/trainforge"
	"github.com/muster-dev/muster/internal/workerd"
)

// trainforgeOptions are the options of TrainForge's worker node, with the documented names and defaults.
type trainforgeOptions struct {
	trainforge.BridgeConfig

	status bool
	dropIn bool
	token  app.Secret
}

func newTrainForge() Adapter {
	return &trainforgeOptions{BridgeConfig: trainforge.BridgeConfig{Scheduler: trainforge.DefaultScheduler, Projects: trainforge.DefaultProjects}}
}

// Flags implements Adapter. A bridge has two more options.
func (o *trainforgeOptions) Flags(dropIn bool) []cli.Flag {
	o.dropIn = dropIn
	const group = "TrainForge"
	jobs := "Maximum number of concurrent jobs (default: the slots of the fleet)"
	if dropIn {
		jobs, o.MaxJobs = "Maximum number of concurrent jobs", trainforge.DefaultMaxJobs
	}
	list := []cli.Flag{
		app.Option{Name: "scheduler", Value: "url", Env: "TRAINFORGE_API_URL", Usage: "TrainForge server", Group: group}.StringVar(&o.Scheduler),
		app.Option{Name: "worker-id", Value: "id", Usage: "Id of the worker (default: a new one, kept for later starts)", Group: group}.StringVar(&o.WorkerID),
		app.Option{Name: "max-jobs", Usage: jobs, Group: group}.IntVar(&o.MaxJobs, 0, 10_000),
		app.Option{Name: "status", Usage: "Print the worker's status and exit", Group: group}.BoolVar(&o.status),
	}
	if dropIn {
		return list
	}
	return append(list,
		append(app.Option{Name: "scheduler-token", Env: "TRAINFORGE_TOKEN", Usage: "Bearer token for the TrainForge server", Group: group}.SecretVars(&o.token, "bearer token"),
			app.Option{Name: "projects", Value: "path", Usage: "Directory of projects that the server does not send", Group: group}.StringVar(&o.Projects))...)
}

func (o *trainforgeOptions) Notes() []string { return nil }

func (o *trainforgeOptions) ConfigureWorker(w *workerd.Config) error {
	w.Name, w.MaxTasks, w.Slots = o.WorkerID, o.MaxJobs, o.MaxJobs
	return nil
}

func (o *trainforgeOptions) RunOnce(ctx context.Context, a *app.App) (bool, error) {
	if !o.status {
		return false, nil
	}
	if o.dropIn {
		f, err := probe.New(probe.Config{}).Run(ctx)
		if err != nil {
			return true, err
		}
		fmt.Fprintf(a.Out, "Machine:      %g cores, %s of memory, %d GPUs, %d container engines\n", f.CPU.Count, f.Memory.Total, len(f.GPUs), len(f.Engines))
	}
	return true, o.Status(ctx, a.Out)
}

func (o *trainforgeOptions) Run(ctx context.Context, deps Deps) error {
	cfg := o.BridgeConfig
	cfg.CancelJobs, cfg.Version = o.dropIn, app.CurrentBuild().Version
	token, err := o.token.Read()
	if err != nil {
		return err
	}
	cfg.Token = token
	if deps.Worker != "" && cfg.WorkerID != "" {
		cfg.WorkerID += "-" + deps.ID
	}
	cfg.Core = deps.coreConfig()
	b, err := trainforge.NewBridge(cfg)
	if err != nil {
		return err
	}
	return b.Run(ctx, deps.AcceptCtx)
}
