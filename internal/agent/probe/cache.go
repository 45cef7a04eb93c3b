package probe

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/atomicfile"
)

// Age is how reliable the facts about the machine are.
type Age int

// Ages of facts.
const (
	Current Age = iota // just probed
	Recent             // cached, as old as those of a running worker may be: tasks do not wait for a probe
	Stale              // cached, older: no new tasks before a probe
)

// recentFor is the age until which cached facts are recent.
const recentFor = Interval + time.Minute

// Cache keeps the facts about the machine for the next start of a worker: a probe takes seconds, since tools that list devices and
// engines are slow.
type Cache struct {
	path  string // of a file whose modification time is that of the last probe
	basis string
	log   *slog.Logger
}

type cacheRecord struct {
	Facts

	Basis string `json:"basis,omitempty"` // what facts depend on besides the machine
}

// NewCache returns the cache in a data dir. Its facts are recent only for the same basis, such as the worker's version and
// configuration, and the same environment.
func NewCache(data, basis string, log *slog.Logger) *Cache {
	parts := []string{basis}
	for _, name := range []string{
		"PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "CONTAINER_HOST", "HF_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
		"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
	} {
		parts = append(parts, os.Getenv(name))
	}
	return &Cache{path: filepath.Join(data, "facts.json"), basis: strings.Join(parts, "\n"), log: log}
}

// Prober is the part of a Probe that a Cache needs.
type Prober interface {
	Run(ctx context.Context) (Facts, error)
	Refresh(ctx context.Context, f *Facts)
}

// Load returns the facts about the machine. A restarted worker uses its cached facts if they are recent and without devices, which may
// have been removed; or if tasks wait for their recovery. The errors are those of ctx and of machine.
func (c *Cache) Load(ctx context.Context, machine Prober, recovering bool) (f Facts, age Age, err error) {
	if f, age, ok := c.read(time.Now()); ok && (age == Recent || recovering) {
		machine.Refresh(ctx, &f)
		return f, age, ctx.Err()
	}
	if f, err = machine.Run(ctx); err != nil {
		return f, Current, err
	}
	c.Write(f)
	return f, Current, nil
}

// read returns the cached facts, and whether they are recent or stale. It ignores a damaged file.
func (c *Cache) read(now time.Time) (f Facts, age Age, ok bool) {
	info, err := os.Stat(c.path)
	if err != nil {
		return Facts{}, Stale, false
	}
	b, err := os.ReadFile(c.path)
	var m cacheRecord
	if err != nil || json.Unmarshal(b, &m) != nil {
		return Facts{}, Stale, false
	}
	age = Stale
	if since := now.Sub(info.ModTime()); since >= 0 && since <= recentFor && m.Basis == c.basis && len(m.GPUs) == 0 {
		age = Recent
	}
	return m.Facts, age, m.Resources.CPUs > 0
}

// Touch records that the cached facts are current.
func (c *Cache) Touch() {
	now := time.Now()
	if err := os.Chtimes(c.path, now, now); err != nil {
		c.log.Debug("cannot update the time of the cached facts", slog.Any("error", err))
	}
}

// Write stores the facts.
func (c *Cache) Write(f Facts) {
	b, err := json.Marshal(cacheRecord{Facts: f, Basis: c.basis})
	if err == nil {
		err = atomicfile.Write(c.path, b, 0o600)
	}
	if err != nil {
		c.log.Debug("cannot cache the facts about the machine", slog.Any("error", err))
	}
}
