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

// diskGrants is the disk that was granted to running attempts.
type diskGrants map[muster.AttemptID]muster.Size

// recoveredGrants returns the grants of recovered attempts that have not ended.
func recoveredGrants(list []run.Recovered) diskGrants {
	r := diskGrants{}
	for i := range list {
		if t, err := list[i].Task(); err == nil && list[i].Report == nil {
			r[t.Attempt] = t.Grant.Disk
		}
	}
	return r
}

// runningGrants returns the grants of attempts that are executed.
func runningGrants(list []agent.Running) diskGrants {
	r := diskGrants{}
	for i := range list {
		r[list[i].Attempt] = list[i].Grant.Disk
	}
	return r
}

// countTimeout limits the time to count the files of attempts.
const countTimeout = 2 * time.Second

// writtenDisk returns how much of their granted disk the attempts have used. It is offered together with the free disk: the server
// subtracts whole grants from the offer, and what was written is no longer free. What cannot be counted in time is not offered.
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
