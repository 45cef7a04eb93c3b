package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/policy"
)

func (a *runner) showWorkerCommand() *cli.Command {
	c := &remote.QueryOptions{}
	return a.NewCommand(app.Command{
		Name: "show", Usage: "Show details of workers", Args: "WORKER…", Complete: c.CompleteWorkers(), Flags: c.Flags(), Description: workerNameHelp,
		Run: func(ctx context.Context, args []string) error {
			return a.forEachWorker(c, args, func(server *client.Client, name string) (muster.Worker, error) {
				return server.Worker(ctx, name)
			}, app.WithBlankLines(a.App, a.drawWorker))
		},
	})
}

func (a *runner) drawWorker(w muster.Worker) error {
	now := time.Now()
	f := app.Details{App: a.App}
	f.Add("worker", term.Sanitize(w.Name))
	f.Add("id", string(w.ID))
	state := app.WorkerStatus(&w)
	f.AddPainted("state", app.StateStyle(state), state)
	f.Add("", stateOnReturn(&w))
	f.Add("quarantined", w.Quarantined)
	f.Add("constrained", w.Constrained)
	if h := w.Health; h != nil {
		f.Add("avoided", h.Avoided)
		f.Add("health", fmt.Sprintf("%s, the last failure of the worker was %s of attempt %s", health(&w), h.Reason, h.Attempt))
	}
	f.Add("deadline", formatDeadline(&w, now))
	f.Add("version", w.Version)
	f.Add("address", w.Address)
	if w.Heartbeat > 0 {
		f.Add("heartbeat", "every "+w.Heartbeat.String())
	}
	f.Add("running", strings.TrimSpace(strconv.Itoa(w.Running)+"  "+formatTasks(w.Tasks, w.Running)))
	f.Add("cpus", freeOfTotal(w, func(r *muster.Resources) string { return strconv.FormatFloat(r.CPUs, 'g', 4, 64) }))
	f.Add("memory", freeOfTotal(w, func(r *muster.Resources) string { return r.Memory.String() }))
	f.Add("disk", freeOfTotal(w, func(r *muster.Resources) string { return r.Disk.String() }))
	f.Add("slots", freeOfTotal(w, func(r *muster.Resources) string { return strconv.Itoa(r.Slots) }))
	if n := w.Resources.MaxTasks; n > 0 {
		f.Add("max tasks", strconv.Itoa(n)+" at once")
	}
	for i := range w.Resources.GPUs {
		addGPU(&f, &w.Resources.GPUs[i], w.Load)
	}
	if w.Load != nil {
		f.Add("load", fmt.Sprintf("%s CPU, %s memory in use", term.FormatPercent(w.Load.CPU), w.Load.Memory))
		if d := w.Load.Disk; d != nil {
			f.Add("", fmt.Sprintf("%s of %s free in the data directory", d.Free, d.Total))
		}
	}
	f.Add("tags", strings.Join(w.Tags, " "))
	for _, name := range slices.Sorted(maps.Keys(w.Labels)) {
		f.Add("label", term.Sanitize(name+"="+w.Labels[name]))
	}
	if w.Price > 0 {
		f.Add("price", strconv.FormatFloat(w.Price, 'g', -1, 64)+" per hour")
	}
	f.Add("kinds", strings.Join(w.Kinds, " "))
	addPolicy(&f, w.Allow)
	f.Add("projects", strings.Join(w.Projects, " "))
	addMissingFeatures(&f, w.UnsupportedFeatures)
	f.Add("joined", strings.TrimSpace(app.FormatPast(w.JoinedAt, now)+joinedBy(&w)))
	f.Add("seen", app.FormatPast(w.LastSeenAt, now))
	return f.Draw()
}

// joinedBy names the key by which a worker joined.
func joinedBy(w *muster.Worker) string {
	if w.Token == "" {
		return ""
	}
	return " by key " + term.Sanitize(w.Token)
}

// formatDeadline describes the automatic action of a worker and its time.
func formatDeadline(w *muster.Worker, now time.Time) string {
	action := "resumes"
	if w.Draining {
		action = "stops running tasks"
	}
	switch remaining := w.Deadline.Std().Sub(now); {
	case w.Deadline == 0:
		return ""
	case remaining > 0:
		return fmt.Sprintf("%s in %s (%s)", action, term.FormatDuration(remaining), app.FormatTime(w.Deadline))
	default:
		return fmt.Sprintf("%s now, since %s", action, app.FormatTime(w.Deadline))
	}
}

// stateOnReturn describes the state of an unreachable or removed worker after it reconnects, "" if it will be active.
func stateOnReturn(w *muster.Worker) string {
	switch {
	case w.State != muster.WorkerUnreachable && w.State != muster.WorkerGone:
		return ""
	case w.Pending:
		return "will be pending when it reconnects"
	case w.Draining:
		return "will be draining when it reconnects"
	case w.Paused:
		return "will be paused when it reconnects"
	default:
		return ""
	}
}

// formatTasks lists the first tasks of a worker.
func formatTasks(tasks []muster.TaskID, total int) string {
	const maxNames = 10
	first := tasks[:min(len(tasks), maxNames)]
	s := app.JoinComma(first)
	if total > len(first) && len(first) > 0 {
		s += fmt.Sprintf(" and %d more", total-len(first))
	}
	return s
}

// addGPU adds the details of a device.
func addGPU(f *app.Details, g *muster.GPU, load *muster.Load) {
	s := fmt.Sprintf("%d: %s, %s", g.Index, g.Name, g.Memory)
	if g.MIG != "" {
		s += ", MIG " + g.MIG
	}
	f.Add("gpu", fmt.Sprintf("%s (%s)", s, g.UUID))
	if load != nil {
		if i := slices.IndexFunc(load.GPUs, func(l muster.GPULoad) bool { return l.UUID == g.UUID }); i >= 0 {
			f.Add("", formatGPULoad(&load.GPUs[i]))
		}
	}
	if g.Quarantined != "" {
		f.Add("", "quarantined: "+g.Quarantined)
	}
}

// addPolicy adds what the owner of a worker allows.
func addPolicy(f *app.Details, a *muster.Allow) {
	name := "allows"
	for _, w := range policy.Rules(a) {
		f.Add(name, w.Subject+": "+w.Allowed)
		name = ""
	}
}

// addMissingFeatures adds the features that a worker does not support.
func addMissingFeatures(f *app.Details, lacks []string) {
	var words []string
	if specs := slices.DeleteFunc(slices.Clone(lacks), func(s string) bool { return slices.Contains(muster.RunFeatures, s) }); len(specs) > 0 {
		words = append(words, "takes no tasks that use "+strings.Join(specs, ", "))
	}
	name := "lacks"
	for _, w := range append(words, muster.Limitations(lacks)...) {
		f.Add(name, w)
		name = ""
	}
}

// formatGPULoad formats a reading of a device.
func formatGPULoad(l *muster.GPULoad) string {
	var parts []string
	if l.Utilization != nil {
		parts = append(parts, term.FormatPercent(*l.Utilization)+" busy")
	}
	if l.Memory != nil {
		parts = append(parts, l.Memory.String()+" in use")
	}
	if l.Temperature != nil {
		parts = append(parts, strconv.FormatFloat(*l.Temperature, 'f', 0, 64)+" °C")
	}
	if l.Power != nil {
		parts = append(parts, strconv.FormatFloat(*l.Power, 'f', 0, 64)+" W")
	}
	if l.Latency != nil && len(parts) > 0 {
		parts = append(parts, fmt.Sprintf("read in %.0f ms", *l.Latency*1000))
	}
	return strings.Join(parts, ", ")
}
