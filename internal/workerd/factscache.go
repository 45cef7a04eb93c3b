package workerd

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/atomicfile"
)

// factsFile is the cached facts about the machine. Its modification time is that of the last probe.
const factsFile = "facts.json"

// reprobing is why a worker with stale facts takes no new tasks.
const reprobing = "probing the machine again"

// factsAge is how reliable the facts about the machine are.
type factsAge int

const (
	current factsAge = iota // just probed
	recent                  // cached, as old as those of a running worker may be: tasks do not wait for a probe
	stale                   // cached, older: no new tasks before a probe
)

const (
	recentFor     = probe.Interval + time.Minute // the age until which cached facts are recent
	recentReprobe = 5 * time.Second              // when a worker with recent facts probes the machine
)

// factsRecord is the content of factsFile.
type factsRecord struct {
	probe.Facts

	Basis string `json:"basis,omitempty"` // see basis
}

// loadFacts returns the facts about the machine. A probe takes seconds, since tools that list devices and engines are slow. A restarted
// worker uses its cached facts if they are recent and without devices, which may have been removed; or if tasks wait for their
// recovery. The errors are those of ctx and of machine.
func (w *Worker) loadFacts(ctx context.Context, machine prober, recovering bool) (f probe.Facts, age factsAge, err error) {
	if f, age, ok := w.readFacts(time.Now()); ok && (age == recent || recovering) {
		machine.Refresh(ctx, &f)
		return f, age, ctx.Err()
	}
	if f, err = machine.Run(ctx); err != nil {
		return f, current, err
	}
	w.writeFacts(f)
	return f, current, nil
}

// readFacts returns the cached facts, and whether they are recent or stale. It ignores a damaged file.
func (w *Worker) readFacts(now time.Time) (f probe.Facts, age factsAge, ok bool) {
	path := filepath.Join(w.cfg.Data, factsFile)
	info, err := os.Stat(path)
	if err != nil {
		return probe.Facts{}, stale, false
	}
	b, err := os.ReadFile(path)
	var m factsRecord
	if err != nil || json.Unmarshal(b, &m) != nil {
		return probe.Facts{}, stale, false
	}
	age = stale
	if since := now.Sub(info.ModTime()); since >= 0 && since <= recentFor && m.Basis == w.basis() && len(m.GPUs) == 0 {
		age = recent
	}
	return m.Facts, age, m.Resources.CPUs > 0
}

// basis is what facts depend on besides the machine: the worker's configuration and environment, and the machine's boot ID.
func (w *Worker) basis() string {
	parts := []string{w.cfg.Version, proctree.BootID(), w.cfg.Engine, w.cfg.Isolation.TaskUser, fmt.Sprint(w.cfg.Bandwidth)}
	for _, name := range []string{
		"PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "CONTAINER_HOST", "HF_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
		"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
	} {
		parts = append(parts, os.Getenv(name))
	}
	return strings.Join(parts, "\n")
}

// touchFacts records that the cached facts are current.
func (w *Worker) touchFacts() {
	now := time.Now()
	if err := os.Chtimes(filepath.Join(w.cfg.Data, factsFile), now, now); err != nil {
		w.log.Debug("cannot update the time of the cached facts", slog.Any("error", err))
	}
}

// writeFacts caches the facts for the next start, which is slower without them.
func (w *Worker) writeFacts(f probe.Facts) {
	b, err := json.Marshal(factsRecord{Facts: f, Basis: w.basis()})
	if err == nil {
		err = atomicfile.Write(filepath.Join(w.cfg.Data, factsFile), b, 0o600)
	}
	if err != nil {
		w.log.Debug("cannot cache the facts about the machine", slog.Any("error", err))
	}
}
