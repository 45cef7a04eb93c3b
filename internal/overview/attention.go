package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/sched"
)

// Thresholds of free disk space.
const (
	lowFreeBytes, lowFreeShare           = muster.Size(5 << 30), 0.10
	criticalFreeBytes, criticalFreeShare = muster.Size(1 << 30), 0.02
	recentLoss                           = muster.Duration(7 * 24 * 3600 * 1e9) // how long lost workers and failing names are shown
)

// attention lists what needs attention, and returns the total number. The most severe rows come first; kinds of equal severity
// alternate. A key of a project sees only the project's jobs.
func attention(f *Input) ([]wire.Attention, int) {
	all := jobs(f)
	if f.Project == "" {
		all = append(all, server(f)...)
		for i := range f.Fleet.Workers {
			all = append(all, worker(f, &f.Fleet.Workers[i])...)
		}
	}
	slices.SortStableFunc(all, func(a, b wire.Attention) int { return cmp.Compare(rank(a.Severity), rank(b.Severity)) })
	return interleave(all), len(all)
}

// interleave keeps at most MaxRowsPerKind rows of each kind, the last of which counts the omitted ones, and alternates the kinds. list is in order of severity.
func interleave(list []wire.Attention) []wire.Attention {
	remaining := map[wire.AttentionKind]int{}
	for i := range list {
		remaining[list[i].Kind]++
	}
	type row struct {
		wire.Attention
		turn int
	}
	var rows []row
	turns := map[wire.AttentionKind]int{}
	for _, a := range list {
		turn := turns[a.Kind]
		switch count := remaining[a.Kind]; {
		case turn < MaxRowsPerKind-1 || turn == MaxRowsPerKind-1 && count == 1:
			rows = append(rows, row{a, turn})
		case turn == MaxRowsPerKind-1:
			rows = append(rows, row{overflowRow(a.Severity, a.Kind, count), turn})
		}
		turns[a.Kind]++
		remaining[a.Kind]--
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(a.turn, b.turn))
	})
	rowsOut := make([]wire.Attention, len(rows))
	for i := range rows {
		rowsOut[i] = rows[i].Attention
	}
	return rowsOut
}

// overflowRow returns the row that represents n rows of a kind.
func overflowRow(s wire.Severity, kind wire.AttentionKind, n int) wire.Attention {
	a := wire.Attention{Severity: s, Kind: kind, More: n, Action: wire.ActListWorkers}
	var text string
	switch kind {
	case wire.JobFailing:
		a.Action, text = wire.ActListJobs, "%d more jobs keep failing."
	case wire.GatewayDown:
		a.Action, text = wire.ActOpenDocs, "%d more gateways do not work."
	case wire.GPUQuarantined:
		text = "%d more GPUs are quarantined."
	case wire.WorkerUnreachable:
		text = "%d more workers are unreachable."
	case wire.WorkerLost:
		text = "%d more workers were lost and have not come back."
	case wire.WorkerConstrained:
		text = "%d more workers take no tasks now."
	case wire.WorkerAvoided:
		text = "%d more workers are avoided, because attempts fail there."
	case wire.WorkerPaused:
		text = "%d more workers are paused."
	case wire.WorkerOutdated:
		text = "%d more workers run another version than the server."
	case wire.DiskFilling:
		text = "%d more disks are filling up."
	}
	a.Message = fmt.Sprintf(text, n)
	return a
}

func rank(s wire.Severity) int {
	return slices.Index([]wire.Severity{wire.Critical, wire.Warning, wire.Notice}, s)
}

// jobs lists active jobs whose attempts fail, and names whose last jobs failed.
func jobs(f *Input) []wire.Attention {
	var list []wire.Attention
	for _, j := range f.Fleet.Failing {
		if f.Project != "" && j.Project != f.Project {
			continue
		}
		list = append(list, wire.Attention{
			Severity: wire.Warning, Kind: wire.JobFailing, Job: j.ID, JobName: j.Name, Action: wire.ActOpenJob,
			Message: fmt.Sprintf("%d attempts of job %s (%s) have failed.", j.Failures, j.ID, j.Name),
		})
	}
	for _, n := range f.Failing {
		if f.Project != "" && n.Project != f.Project || f.Fleet.At.Sub(n.FinishedAt) > recentLoss {
			continue
		}
		list = append(list, wire.Attention{
			Severity: wire.Warning, Kind: wire.JobFailing, Job: n.Job, JobName: n.Name, Action: wire.ActOpenJob,
			Message: fmt.Sprintf("The last %d jobs named %q in project %q have failed.", FailingStreak, n.Name, n.Project),
		})
	}
	return list
}

// server lists problems of the server.
func server(f *Input) []wire.Attention {
	var list []wire.Attention
	for _, g := range f.Gateways {
		if g.Status != "ok" {
			list = append(list, wire.Attention{
				Severity: wire.Critical, Kind: wire.GatewayDown, Action: wire.ActOpenDocs,
				Message: fmt.Sprintf("The gateway to %s does not work: %s.", g.Name, strings.TrimSuffix(g.Status, ".")),
			})
		}
	}
	if d := f.Disk; d.Size > 0 && (d.Free < lowFreeBytes || float64(d.Free) < lowFreeShare*float64(d.Size)) {
		a := wire.Attention{
			Severity: wire.Warning, Kind: wire.DiskFilling, Action: wire.ActFreeDisk,
			Message: fmt.Sprintf("The disk of the server's data directory has %s of %s free.", d.Free, d.Size),
		}
		if d.Free < criticalFreeBytes || float64(d.Free) < criticalFreeShare*float64(d.Size) {
			a.Severity = wire.Critical
		}
		list = append(list, a)
	}
	return list
}

// worker lists problems of a worker.
func worker(f *Input, w *sched.WorkerSnapshot) []wire.Attention {
	var list []wire.Attention
	add := func(s wire.Severity, k wire.AttentionKind, action wire.AttentionAction, format string, args ...any) {
		list = append(list, wire.Attention{Severity: s, Kind: k, Worker: w.ID, WorkerName: w.Name, Action: action, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case w.State == muster.WorkerUnreachable && w.Running > 0:
		add(wire.Critical, wire.WorkerUnreachable, wire.ActOpenWorker, "Worker %s is unreachable and holds %d tasks.", w.Name, w.Running)
	case w.State == muster.WorkerUnreachable:
		add(wire.Warning, wire.WorkerUnreachable, wire.ActOpenWorker, "Worker %s is unreachable.", w.Name)
	case w.State == muster.WorkerGone && !w.CleanShutdown && f.Fleet.At.Sub(w.SeenAt) < recentLoss:
		add(wire.Warning, wire.WorkerLost, wire.ActRemove, "Worker %s was lost and has not come back.", w.Name)
	}
	if !w.Connected() {
		return list
	}
	for i := range w.Offers.GPUs {
		if d := &w.Offers.GPUs[i]; d.Quarantined != "" {
			add(wire.Warning, wire.GPUQuarantined, wire.ActHeal, "GPU %d of worker %s is quarantined: %s.", d.Index, w.Name, strings.TrimSuffix(d.Quarantined, "."))
			list[len(list)-1].GPU = d.UUID
		}
	}
	if w.Constrained != "" {
		add(wire.Warning, wire.WorkerConstrained, wire.ActOpenWorker, "Worker %s takes no tasks now: %s.", w.Name, strings.TrimSuffix(w.Constrained, "."))
	}
	if w.Load != nil && w.Load.Disk != nil && w.Load.Disk.Low {
		add(wire.Warning, wire.DiskFilling, wire.ActFreeDisk, "The disk of worker %s has %s of %s free.", w.Name, w.Load.Disk.Free, w.Load.Disk.Total)
	}
	if w.Avoided != "" {
		add(wire.Warning, wire.WorkerAvoided, wire.ActResume, "Worker %s %s.", w.Name, strings.TrimSuffix(w.Avoided, "."))
	}
	if w.State == muster.WorkerPaused && w.Deadline == 0 {
		add(wire.Notice, wire.WorkerPaused, wire.ActResume, "Worker %s is paused: it takes no new tasks until it is resumed.", w.Name)
	}
	if w.Version != "" && f.Version != "" && w.Version != f.Version {
		add(wire.Notice, wire.WorkerOutdated, wire.ActUpgrade, "Worker %s runs version %s, the server runs %s.", w.Name, w.Version, f.Version)
	}
	return list
}
