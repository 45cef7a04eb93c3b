package workerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
)

// factsFile is what the worker last found out about its machine. Its time of change is
// that of the last look.
const factsFile = "facts.json"

// reprobing is why a worker takes nothing new while it goes by what it remembers.
const reprobing = "it looks at its machine anew"

// factsAge is how far what a worker knows of its machine can be relied on.
type factsAge int

const (
	current factsAge = iota // it was found out just now
	recent                  // by the last process of this worker, and it looks at the machine as often: nothing waits for a look
	stale                   // by an earlier one: nothing new is taken before a look
)

// Those ages of remembered facts count as recent with which a running worker works, too.
const (
	recentFor     = probe.Interval + time.Minute
	recentReprobe = 5 * time.Second // when a worker that goes by recent facts looks at its machine
)

// factsRecord is what the factsFile has.
type factsRecord struct {
	probe.Facts

	Basis string `json:"basis,omitempty"` // what else the facts depend on: see basis
}

// loadFacts finds out what the machine has, which takes seconds: tools that tell of devices
// and engines are slow. A worker that was restarted goes by what it remembers: if that is
// recent, and has no devices that may be gone; or while tasks wait to be taken up. The errors are
// those of ctx and of machine.
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

// readFacts returns what an earlier process found out, and whether that is recent or
// stale. A file that is damaged counts as none.
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

// basis is what facts depend on besides the machine: how the worker was started, and since when the
// machine runs.
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

// touchFacts notes that the machine is still as it is remembered, or as was just remembered.
func (w *Worker) touchFacts() {
	now := time.Now()
	if err := os.Chtimes(filepath.Join(w.cfg.Data, factsFile), now, now); err != nil {
		w.log.Debug("it is not noted when the machine was probed", slog.Any("error", err))
	}
}

// writeFacts keeps what was found out for the next process. Without it that one only
// begins later.
func (w *Worker) writeFacts(f probe.Facts) {
	path := filepath.Join(w.cfg.Data, factsFile)
	b, err := json.Marshal(factsRecord{Facts: f, Basis: w.basis()})
	if err == nil {
		err = os.WriteFile(path+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		w.log.Debug("what was found out about the machine is not kept", slog.Any("error", errors.Join(err, os.Remove(path+".new"))))
	}
}
