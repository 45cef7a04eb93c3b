package workerd

import (
	"context"
	"path/filepath"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/meter"
	"github.com/muster-dev/muster/internal/agent/run"
)

// diskGrants is the disk that was granted to attempts which run.
type diskGrants map[muster.AttemptID]muster.Size

// recoveredGrants is what was granted to attempts that an earlier process started and that have not ended.
func recoveredGrants(list []run.Recovered) diskGrants {
	r := diskGrants{}
	for i := range list {
		if t, err := list[i].Task(); err == nil && list[i].Report == nil {
			r[t.Attempt] = t.Grant.Disk
		}
	}
	return r
}

// runningGrants is what was granted to attempts that are executed.
func runningGrants(list []agent.Running) diskGrants {
	r := diskGrants{}
	for i := range list {
		r[list[i].Attempt] = list[i].Grant.Disk
	}
	return r
}

// countTimeout is how long the files of attempts are counted.
const countTimeout = 2 * time.Second

// writtenDisk is how much of the disk granted to them the attempts have taken. It is offered
// together with what is free: the server takes the whole grants off that, and what was written is
// no longer free. What cannot be counted in time is not offered.
func (w *Worker) writtenDisk(ctx context.Context, grants diskGrants) (all muster.Size) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	for id, grant := range grants {
		if grant == 0 {
			continue
		}
		if size, ok := meter.DiskUsage(ctx, filepath.Join(w.cfg.Data, "tasks", id.Task.String()+"-"+strconv.Itoa(id.N))); ok {
			all += min(size, grant)
		}
	}
	return all
}
