package workerd

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/run/kinds"
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

// newRuntimeCheck returns the check of the kinds that the worker's owner allows. While a container engine is ready, a worker without an
// interpreter of its operator offers all of them: images may have the packages.
func (c *Config) newRuntimeCheck(own []*kind.Kind, managed *runtimes.Runtimes, engineReady func() bool, log *slog.Logger) *runtimeCheck {
	images := func() bool { return c.Python == "" && engineReady() }
	check := &runtimeCheck{
		available: func(ctx context.Context, runtime string) error {
			if images() {
				return nil
			}
			return managed.Available(ctx, runtime)
		},
		likely: func(runtime string) bool { return images() || managed.Likely(runtime) },
		log:    log, disabled: map[string]string{}, failed: map[string]bool{},
	}
	for _, k := range append(kind.Embedded(), own...) {
		if c.accepts(k.Name) && len(runtimesOf(k)) > 0 {
			check.kinds = append(check.kinds, k)
		}
	}
	return check
}

// KindOffer lists the kinds that a worker would offer.
type KindOffer struct {
	Offered  []string   `json:"offered_kinds"`
	Withheld []Withheld `json:"withheld_kinds,omitempty"` // those that its owner allows
}

// Withheld is why kinds are not offered.
type Withheld struct {
	Kinds  []string `json:"kinds"`
	Reason string   `json:"reason"`
}

// OfferedKinds checks which kinds a worker on the machine would offer. It executes interpreters, and builds nothing.
func (c *Config) OfferedKinds(ctx context.Context, machine *probe.Facts) (KindOffer, error) {
	cfg := *c
	cfg.AI.Kinds = cfg.kindsDir()
	if err := cfg.checkKinds(); err != nil {
		return KindOffer{}, err
	}
	log := slog.New(slog.DiscardHandler)
	managed, err := runtimes.New(runtimes.Config{Dir: c.Data, Python: c.Python, Wheels: c.Wheels, Path: taskPath(c.Isolation.CanReach()), Log: log, Standalone: true})
	if err != nil {
		return KindOffer{}, err
	}
	loaded, errs := kinds.Load(cfg.AI.Kinds)
	own := kinds.Definitions(loaded)
	engine := slices.ContainsFunc(machine.Engines, func(e probe.Engine) bool { return e.RunsTasks(machine.System.OS) })
	withheld := map[string][]string{}
	if !engine && cfg.accepts(muster.KindContainer) {
		withheld["no container engine is ready"] = []string{muster.KindContainer}
	}
	check := cfg.newRuntimeCheck(own, managed, func() bool { return engine }, log)
	check.start(func(string, bool) {})
	check.check(ctx)
	for name, reason := range check.disabled {
		withheld[reason] = append(withheld[reason], name)
	}
	offer := KindOffer{Offered: []string{}}
	names := kind.Core()
	for _, k := range append(kind.Embedded(), own...) {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if cfg.accepts(name) {
			offer.Offered = append(offer.Offered, name)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(withheld)) {
		slices.Sort(withheld[reason])
		offer.Withheld = append(offer.Withheld, Withheld{Kinds: withheld[reason], Reason: reason})
		offer.Offered = slices.DeleteFunc(offer.Offered, func(name string) bool { return slices.Contains(withheld[reason], name) })
	}
	for _, err := range errs {
		offer.Withheld = append(offer.Withheld, Withheld{Reason: err.Error()})
	}
	return offer, ctx.Err()
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
