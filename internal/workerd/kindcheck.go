package workerd

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/runtimes"
	"github.com/muster-dev/muster/internal/kind"
)

// runtimeCheck offers kinds only while one of their runtimes is available on the machine.
type runtimeCheck struct {
	kinds     []*kind.Kind // that have runtimes
	available func(ctx context.Context, runtime string) error
	likely    func(runtime string) bool // available will probably return nil
	enable    func(kind string, on bool)
	log       *slog.Logger

	disabled map[string]string // reasons by kind
	failed   map[string]bool   // kinds whose last check failed, or that were not checked yet
}

// newRuntimeCheck returns the check of the kinds that the worker's owner allows. A worker with a container engine and without an
// interpreter of its operator offers all of them: images may have the packages.
func (w *Worker) newRuntimeCheck(own []*kind.Kind, managed *runtimes.Runtimes, engine bool) *runtimeCheck {
	c := &runtimeCheck{available: managed.Available, likely: managed.Likely, log: w.log, disabled: map[string]string{}, failed: map[string]bool{}}
	if engine && w.cfg.Python == "" {
		return c
	}
	for _, k := range append(kind.Embedded(), own...) {
		if w.cfg.accepts(k.Name) && len(runtimesOf(k)) > 0 {
			c.kinds = append(c.kinds, k)
		}
	}
	return c
}

// runtimesOf lists the runtimes of a kind: one for each of its variants.
func runtimesOf(k *kind.Kind) (names []string) {
	if k.Runtime != "" {
		names = append(names, k.Runtime)
	}
	for _, v := range k.Variants {
		if v.Runtime != "" && !slices.Contains(names, v.Runtime) {
			names = append(names, v.Runtime)
		}
	}
	return names
}

// start disables the kinds that must be checked first. Call it before the worker offers anything.
func (c *runtimeCheck) start(enable func(kind string, on bool)) {
	c.enable = enable
	for _, k := range c.kinds {
		c.failed[k.Name] = true
		if !slices.ContainsFunc(runtimesOf(k), c.likely) {
			c.disabled[k.Name] = ""
			c.enable(k.Name, false)
		}
	}
}

// run checks all kinds at once, and again every probe.Interval until ctx ends.
func (c *runtimeCheck) run(ctx context.Context) error {
	tick := time.NewTicker(probe.Interval)
	defer tick.Stop()
	for {
		c.check(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// check checks each runtime once, and enables and disables kinds. A kind that a check has enabled is disabled when two checks in a row
// have failed: the machine may only have been slow.
func (c *runtimeCheck) check(ctx context.Context) {
	results := map[string]error{}
	off, on := map[string][]string{}, []string(nil) // kinds, off by reason
	for _, k := range c.kinds {
		var reasons []string
		names := runtimesOf(k)
		for _, name := range names {
			err, checked := results[name]
			if !checked {
				err = c.available(ctx, name)
				results[name] = err
			}
			if err != nil {
				reasons = append(reasons, err.Error())
			}
		}
		if ctx.Err() != nil {
			return
		}
		reason := strings.Join(slices.Compact(reasons), "; ")
		before, disabled := c.disabled[k.Name]
		repeated := c.failed[k.Name]
		if c.failed[k.Name] = len(reasons) == len(names); !c.failed[k.Name] {
			if disabled {
				delete(c.disabled, k.Name)
				c.enable(k.Name, true)
				if before != "" {
					on = append(on, k.Name)
				}
			}
			continue
		}
		if disabled && before != reason || !disabled && repeated {
			c.disabled[k.Name] = reason
			c.enable(k.Name, false)
			off[reason] = append(off[reason], k.Name)
		}
	}
	for reason, kinds := range off {
		c.log.Warn("kinds are not offered: "+reason, slog.String("kinds", strings.Join(kinds, ",")))
	}
	if len(on) > 0 {
		c.log.Info("kinds are offered again", slog.String("kinds", strings.Join(on, ",")))
	}
}
