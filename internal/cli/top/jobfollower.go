package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/client"
)

// jobFollower has the events of one job and its tasks, for as long as a page shows it.
type jobFollower struct {
	feed *live.Feed
	stop context.CancelFunc
}

// followJob starts to follow a job.
func (m *model) followJob(id muster.JobID) *jobFollower {
	ctx, stop := context.WithCancel(m.ctx)
	f := &jobFollower{feed: live.New(m.api, client.EventQuery{Job: id}), stop: stop}
	m.group.Go(func() error {
		_ = f.feed.Run(ctx) // a job that is gone: the page's own read says so
		return nil
	})
	return f
}

func (f *jobFollower) pop() live.Batch { return f.feed.Pop() }

// names are the names of workers, which tasks know by their ids only.
type names struct {
	pacer

	byID map[muster.WorkerID]string
}

// load reads the names if one was asked for that is not known.
func (n *names) load(m *model) tea.Cmd {
	if !n.stale || m.now.Sub(n.lastRead) < 10*time.Second {
		return nil
	}
	return read(m, &n.pacer, m.api.Workers, func(m *model, all []muster.Worker) { m.names.update(all) })
}

func (n *names) update(all []muster.Worker) {
	n.byID = make(map[muster.WorkerID]string, len(all))
	for i := range all {
		n.byID[all[i].ID] = all[i].Name
	}
}

// workerName is a worker's name, or its id while that is not known.
func (m *model) workerName(id muster.WorkerID) string {
	if id == "" {
		return ""
	}
	name, known := m.names.byID[id]
	if !known {
		m.names.stale = true
		return string(id)
	}
	return name
}
