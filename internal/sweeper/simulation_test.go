package sweeper_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/retention"
	"github.com/muster-dev/muster/internal/store"
)

var seeds = flag.Int("seeds", 3, "number of simulated worlds")

const clients = 3 // each is also a worker

const day = muster.Duration(24 * time.Hour)

// simulate runs a world of a seed with many kills, lets it recover, and returns what it found.
func simulate(t *testing.T, seed uint64, broken mutant) error {
	t.Helper()
	w := &world{
		dir: t.TempDir(), mutant: broken, rnd: rand.New(rand.NewPCG(seed, 1)), jobs: map[muster.JobID]*model{}, removed: map[muster.JobID]bool{},
		server: retention.ServerPolicy{Uploads: retention.Limit{Age: muster.Duration(time.Hour)}},
		policy: retention.Policy{Jobs: &retention.Limit{Age: 3 * day}, Logs: &retention.Limit{Age: day}, Artifacts: &retention.Limit{Age: 2 * day}},
	}
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		w.join(clients)
		for range 8 {
			steps := 20 + w.rnd.IntN(400)
			if w.rnd.IntN(4) == 0 {
				steps = -1 // it lives to its end
			}
			w.run(steps, time.Duration(1+w.rnd.IntN(72))*time.Hour, clients)
			time.Sleep(time.Duration(w.rnd.IntN(24)) * time.Hour) // the server is off
		}
		w.endAll()
		w.policy = retention.UnlimitedPolicy() // only the rest of what was removed goes
		w.run(-1, 40*time.Hour, 0)
		if w.fatal == nil {
			w.start(-1)
			w.fatal = w.checkClean()
			w.close()
		}
	})
	return w.fatal
}

// join stores the workers of clients.
func (w *world) join(clients int) {
	w.start(-1)
	defer w.close()
	var rows muster.Rows
	for i := range clients {
		name := "w" + strconv.Itoa(i)
		rows.Workers = append(rows.Workers, muster.Worker{ID: muster.WorkerID(name), Name: name, State: muster.WorkerActive})
	}
	if err := w.store.Commit(w.ctx, &store.Batch{Rows: rows}); err != nil {
		w.t.Fatal(err)
	}
	w.cancel(context.Canceled)
}

// endAll ends all jobs, so that nothing is left open.
func (w *world) endAll() {
	w.start(-1)
	defer w.close()
	for id := range w.next + 1 {
		if j := w.jobs[id]; j != nil && !j.ended {
			if err := w.report(w.process, j); err != nil {
				w.fail(err)
			}
		}
	}
	w.cancel(context.Canceled)
}

// Everything that a job refers to is there at any time, also with uploads during sweeps and kills between any two effects, and everything
// else is gone in the end.
func TestWorld(t *testing.T) {
	t.Parallel()
	n := *seeds
	if testing.Short() {
		n = min(n, 2)
	}
	for seed := range n {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			if err := simulate(t, uint64(seed), ""); err != nil {
				t.Error(err)
			}
		})
	}
}

// The simulation finds what breaks a rule.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	for _, broken := range []mutant{noTouch, noWorkers, wrongOrder, removedRows} {
		t.Run(string(broken), func(t *testing.T) {
			for seed := range uint64(40) {
				if err := simulate(t, seed, broken); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("was not found")
		})
	}
}
