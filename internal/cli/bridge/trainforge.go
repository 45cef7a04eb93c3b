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

// trainforgeOptions are those of TrainForge's worker node, by the names and defaults of its guide.
type trainforgeOptions struct {
	trainforge.BridgeConfig

	status bool
	dropIn bool
	token  app.Secret
}

func newTrainForge() Adapter {
	return &trainforgeOptions{BridgeConfig: trainforge.BridgeConfig{Scheduler: trainforge.DefaultScheduler, Projects: trainforge.DefaultProjects}}
}

// Flags returns the guide's options; the variable is that of TrainForge's other workers. A bridge has two more.
func (o *trainforgeOptions) Flags(dropIn bool) []cli.Flag {
	o.dropIn = dropIn
	const group = "TrainForge"
	jobs := "run at most `N` jobs at once (default: as many as the fleet has slots)"
	if dropIn {
		jobs, o.MaxJobs = "run at most `N` jobs at once", trainforge.DefaultMaxJobs
	}
	list := []cli.Flag{
		app.Option{Name: "scheduler", Env: "TRAINFORGE_API_URL", Usage: "the `URL` of the TrainForge server", Group: group}.StringVar(&o.Scheduler),
		app.Option{Name: "worker-id", Usage: "join with this `ID` (default: a new one, kept for later starts)", Group: group}.StringVar(&o.WorkerID),
		app.Option{Name: "max-jobs", Usage: jobs, Group: group}.IntVar(&o.MaxJobs, 0, 10_000),
		app.Option{Name: "status", Usage: "print the worker's status and exit", Group: group}.BoolVar(&o.status),
	}
	if dropIn {
		return list
	}
	return append(list,
		append(app.Option{Name: "scheduler-token", Env: "TRAINFORGE_TOKEN", Usage: "send this bearer `TOKEN` to the TrainForge server", Group: group}.SecretVars(&o.token, "the bearer token"),
			app.Option{Name: "projects", Usage: "look in this `FOLDER` for projects that the server does not send", Group: group}.StringVar(&o.Projects))...)
}

// Notes returns nothing: every option has its effect.
func (o *trainforgeOptions) Notes() []string { return nil }

// ConfigureWorker gives the worker its name and its limit.
func (o *trainforgeOptions) ConfigureWorker(w *workerd.Config) error {
	w.Name, w.MaxTasks, w.Slots = o.WorkerID, o.MaxJobs, o.MaxJobs
	return nil
}

// RunOnce shows the status.
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
