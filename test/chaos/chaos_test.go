//go:build linux

package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

var (
	seed           = flag.Uint64("seed", 2600, "the seed of the plan; this one hits most targets within the usual duration")
	duration       = flag.Duration("duration", 25*time.Second, "how long faults happen")
	excludedFaults = flag.String("without", "", "faults to leave out, by kind or target, such as server_disk,upgrade")
	keepData       = flag.Bool("keep", false, "keep the data of a run that passes, too")
	history        = flag.String("history", "", "check the history in this file instead of running anything")
)

// TestChaos carries out the plan of a seed, and checks the history.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes are not for -short")
	}
	if *history != "" {
		h, err := loadHistory(*history)
		if err != nil {
			t.Fatal(err)
		}
		report(t, h, check(h))
		return
	}
	dir, err := os.MkdirTemp("", //nolint:usetesting // a failing run keeps it
		fmt.Sprintf("muster-chaos-%d-", *seed))
	if err != nil {
		t.Fatal(err)
	}
	passed := false
	t.Cleanup(func() { // after the file systems in it are unmounted
		if passed {
			_ = os.RemoveAll(dir)
		}
	})
	c := newCluster(t, dir)
	p := makePlan(*seed, *duration, strings.Split(*excludedFaults, ","))
	t.Logf("seed %d for %s: %d jobs, %d faults, %d prunes", *seed, *duration, len(p.Jobs), len(p.Faults), len(p.Prunes))
	if !c.disks {
		t.Log("disk faults are left out: they need root")
		p.Faults = slices.DeleteFunc(p.Faults, func(f fault) bool { return strings.HasSuffix(f.Target, "_disk") })
	}
	h := &History{Seed: *seed}
	if err := c.run(t.Context(), p, h); err != nil {
		t.Errorf("the run could not be completed: %v", err)
	}
	report(t, h, check(h))
	if err := h.save(filepath.Join(dir, "history.json")); err != nil {
		t.Error(err)
	}
	switch {
	case t.Failed():
		t.Logf("all data of the run is in %s; the same plan again: make chaos SEED=%d DURATION=%s", c.saveData(), *seed, *duration)
	case *keepData:
		t.Logf("all data of the run is in %s", c.saveData())
	default:
		passed = true
	}
}

// run carries out a plan, and fills in the history.
func (c *cluster) run(ctx context.Context, p plan, h *History) error {
	for _, p := range append([]*process{c.server}, c.workers...) {
		p.start()
	}
	if err := await(ctx, time.Minute, func() error { _, err := c.client(time.Second, false).Whoami(ctx); return err }); err != nil {
		return fmt.Errorf("the server does not start: %w", err)
	}
	for _, w := range c.workers {
		if err := await(ctx, 2*time.Minute, func() error { _, err := c.client(time.Second, false).Worker(ctx, w.name); return err }); err != nil {
			return fmt.Errorf("%s does not join: %w", w.name, err)
		}
	}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var watchers sync.WaitGroup
	h.Watchers = make([][]muster.Event, 2)
	for i := range h.Watchers {
		watchers.Go(func() { h.Watchers[i] = c.watchEvents(watching, i == 1) })
	}
	watchers.Go(func() { h.Workers = c.sampleWorkers(watching) })

	if err := c.limitProject(ctx); err != nil {
		return fmt.Errorf("set the policy of a project: %w", err)
	}
	start := time.Now()
	var clients sync.WaitGroup
	clients.Go(func() { c.runPrunes(ctx, start, p.Prunes) })
	clients.Go(func() { c.runClients(ctx, start, p.Jobs, &recorder{h: h}) })
	h.Faults = c.injectFaults(ctx, start, p.Faults)
	h.Calm = time.Now().UnixNano()
	c.t.Logf("all faults have ended after %.1f s", time.Since(start).Seconds())
	if err := c.awaitRecovery(ctx); err != nil {
		c.recordExit("%v", err)
	}
	clients.Wait()
	c.awaitJobs(ctx, 5*time.Minute)
	c.t.Logf("all jobs have ended, or are given up, %.1f s after the last fault", time.Since(time.Unix(0, h.Calm)).Seconds())
	stopWatching()
	watchers.Wait()

	if err := c.pruneAll(ctx, newRand(h.Seed, "prune")); err != nil {
		c.recordExit("not all was deleted that is to be: %v", err)
	}
	c.t.Logf("what is not kept is deleted %.1f s after the last fault", time.Since(time.Unix(0, h.Calm)).Seconds())
	var err error
	if h.Final, err = c.readState(ctx); err != nil {
		return err
	}
	h.Leftover = c.readRemoved(ctx, h)
	if err := c.readContents(ctx, h.Final); err != nil {
		return err
	}
	c.t.Logf("the final state, logs and artifacts are read %.1f s after the last fault", time.Since(time.Unix(0, h.Calm)).Seconds())
	c.server.kill()
	c.server.start()
	if h.Reloaded, err = c.readState(ctx); err != nil {
		return err
	}
	c.t.Logf("the state after a last kill is read %.1f s after the last fault", time.Since(time.Unix(0, h.Calm)).Seconds())
	var ends sync.WaitGroup
	for _, w := range c.workers {
		ends.Go(func() { w.stop(stopTimeout) })
	}
	ends.Wait()
	leftovers := make([][]string, len(c.workers))
	for i, w := range c.workers {
		ends.Go(func() { leftovers[i] = w.leftovers(30 * time.Second) })
	}
	ends.Wait()
	h.Left = slices.Concat(leftovers...)
	c.server.stop(stopTimeout)
	c.t.Logf("all processes have ended %.1f s after the last fault", time.Since(time.Unix(0, h.Calm)).Seconds())
	missing, leftover, err := c.readStored(ctx, h)
	if err != nil {
		return fmt.Errorf("read what the server stored: %w", err)
	}
	h.Missing, h.Leftover = missing, append(h.Leftover, leftover...)
	h.Exits = append(slices.Clone(c.exits), c.panics()...)
	h.Effects, err = c.readEffects() // last, so that what still ran has left its traces
	return err
}

// report prints the findings of the checker.
func report(t *testing.T, h *History, found []violation) {
	t.Helper()
	var tasks, attempts, lines, events, files int
	for _, j := range h.Final {
		tasks += len(j.Tasks)
		for _, x := range j.Tasks {
			attempts += len(x.Attempts)
			files += len(x.Files)
			for _, log := range x.Logs {
				lines += strings.Count(log, "\n")
			}
		}
	}
	for _, w := range h.Watchers {
		events += len(w)
	}
	kinds := map[string]int{}
	for _, f := range h.Faults {
		kinds[f.Kind]++
	}
	ends := map[string]int{}
	for _, j := range h.Final {
		for _, x := range j.Tasks {
			for _, a := range x.Attempts {
				ends[strings.TrimSpace(string(a.Outcome)+" "+string(a.Reason))]++
			}
		}
	}
	t.Logf("attempts ended: %v", ends)
	t.Logf("%d jobs were removed, %d of them by a client after their end", len(goneJobs(h)), len(h.Removed))
	t.Logf("checked %d jobs, %d tasks, %d attempts, %d lines of logs, %d artifacts, %d events; %d faults: %v", len(h.Final), tasks, attempts, lines, files, events, len(h.Faults), kinds)
	byInvariant := map[invariant][]violation{}
	for _, v := range found {
		byInvariant[v.Invariant] = append(byInvariant[v.Invariant], v)
	}
	for _, p := range invariants {
		list := byInvariant[p]
		for i, v := range list {
			if i == 5 {
				t.Errorf("   and %d more", len(list)-i)
				break
			}
			t.Errorf("seed %d: violated: %s\n   %s: %s", h.Seed, p, v.Subject, v.Evidence)
		}
	}
	if len(found) == 0 {
		t.Logf("seed %d: all %d promises hold", h.Seed, len(invariants))
	}
}
