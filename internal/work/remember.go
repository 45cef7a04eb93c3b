package work

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
	"github.com/muster-dev/muster/internal/agent/shim/kin"
)

// factsFile is what the worker last found out about its machine. Its time of change is
// that of the last look.
const factsFile = "facts.json"

// looking is why a worker takes nothing new while it goes by what it remembers.
const looking = "it looks at its machine anew"

// age is how far what a worker knows of its machine can be relied on.
type age int

const (
	current age = iota // it was found out just now
	recent             // by the last process of this worker, and it looks at the machine as often: nothing waits for a look
	stale              // by an earlier one: nothing new is taken before a look
)

// Those ages of remembered facts count as recent with which a running worker works, too.
const (
	recentFor  = probe.Every + time.Minute
	recentLook = 5 * time.Second // when a worker that goes by recent facts looks at its machine
)

// memory is what the factsFile has.
type memory struct {
	probe.Facts

	Basis string `json:"basis,omitempty"` // what else the facts depend on: see basis
}

// facts finds out what the machine has, which takes seconds: tools that tell of devices
// and engines are slow. A worker that was restarted goes by what it remembers: if that is
// recent, and has no devices that may be gone; or while tasks wait to be taken up. The errors are
// those of ctx and of machine.
func (w *Worker) facts(ctx context.Context, machine prober, waiting bool) (f probe.Facts, known age, err error) {
	if f, known, ok := w.remembered(time.Now()); ok && (known == recent || waiting) {
		machine.Refresh(ctx, &f)
		return f, known, ctx.Err()
	}
	if f, err = machine.Run(ctx); err != nil {
		return f, current, err
	}
	w.remember(f)
	return f, current, nil
}

// remembered returns what an earlier process found out, and whether that is recent or
// stale. A file that is damaged counts as none.
func (w *Worker) remembered(now time.Time) (f probe.Facts, known age, ok bool) {
	path := filepath.Join(w.cfg.Data, factsFile)
	info, err := os.Stat(path)
	if err != nil {
		return probe.Facts{}, stale, false
	}
	b, err := os.ReadFile(path)
	var m memory
	if err != nil || json.Unmarshal(b, &m) != nil {
		return probe.Facts{}, stale, false
	}
	known = stale
	if since := now.Sub(info.ModTime()); since >= 0 && since <= recentFor && m.Basis == w.basis() && len(m.GPUs) == 0 {
		known = recent
	}
	return m.Facts, known, m.Resources.CPUs > 0
}

// basis is what facts depend on besides the machine: how the worker was started, and since when the
// machine runs.
func (w *Worker) basis() string {
	parts := []string{w.cfg.Version, kin.BootID(), w.cfg.Engine, w.cfg.Limits.TaskUser, fmt.Sprint(w.cfg.Bandwidth)}
	for _, name := range []string{
		"PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "CONTAINER_HOST", "HF_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
		"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
	} {
		parts = append(parts, os.Getenv(name))
	}
	return strings.Join(parts, "\n")
}

// looked notes that the machine is still as it is remembered, or as was just remembered.
func (w *Worker) looked() {
	now := time.Now()
	if err := os.Chtimes(filepath.Join(w.cfg.Data, factsFile), now, now); err != nil {
		w.log.Debug("it is not noted when the machine was probed", slog.Any("error", err))
	}
}

// remember keeps what was found out for the next process. Without it that one only
// begins later.
func (w *Worker) remember(f probe.Facts) {
	path := filepath.Join(w.cfg.Data, factsFile)
	b, err := json.Marshal(memory{Facts: f, Basis: w.basis()})
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
