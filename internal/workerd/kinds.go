package workerd

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run/kinds"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// AI configures tasks of defined kinds.
type AI struct {
	Kinds          string        // directory of the owner's own kinds; "" means kinds in the data dir
	CUDAStreams    int           // for each task; 0 lets the task decide
	OptimizeFor    string        // OptimizeThroughput or OptimizeLatency; "" lets the task decide
	MixedPrecision bool          // default for tasks that do not set it
	CacheModels    bool          // models stay loaded between tasks
	CacheTTL       time.Duration // until an unused model is unloaded; 0 means DefaultCacheTTL
	EnableSwap     bool          // tasks may use swap
}

// Values of AI.OptimizeFor.
const (
	OptimizeThroughput = "throughput"
	OptimizeLatency    = "latency"
)

// DefaultCacheTTL is how long a model without tasks stays loaded.
const DefaultCacheTTL = 10 * time.Minute

func (ai *AI) check() error {
	switch {
	case ai.CUDAStreams < 0 || ai.CacheTTL < 0:
		return muster.Errorf(muster.Invalid, "--cuda-streams and --cache-models-ttl must not be negative")
	case !slices.Contains([]string{"", OptimizeThroughput, OptimizeLatency}, ai.OptimizeFor):
		return muster.Errorf(muster.Invalid, "unknown --optimize-for %q: use throughput or latency", ai.OptimizeFor)
	}
	return nil
}

// environ returns environment variables for the programs of tasks. buffer is the share of memory, of GPUs too, that they leave free.
func (ai *AI) environ(buffer float64) []string {
	var env []string
	if ai.CUDAStreams > 0 {
		env = append(env, "MUSTER_CUDA_STREAMS="+strconv.Itoa(ai.CUDAStreams))
	}
	if ai.OptimizeFor != "" {
		env = append(env, "MUSTER_OPTIMIZE_FOR="+ai.OptimizeFor)
	}
	if ai.MixedPrecision {
		env = append(env, "MUSTER_MIXED_PRECISION=1")
	}
	if buffer > 0 {
		env = append(env, "MUSTER_MEMORY_BUFFER="+strconv.FormatFloat(buffer, 'f', -1, 64))
	}
	if ai.EnableSwap {
		env = append(env, "MUSTER_ENABLE_SWAP=1")
	}
	return env
}

var kindPattern = lazyregexp.New(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// ParseKind checks an entry of Config.Kinds. Whether the owner defines the kind is not known yet.
func ParseKind(s string) (string, error) {
	if kindPattern.Get().MatchString(s) {
		return s, nil
	}
	return "", muster.Errorf(muster.Invalid, "invalid kind %q: use lower-case words such as script or mnist_training", s)
}

// kindsInterval is the time between checks of the directory of own kinds.
const kindsInterval = 15 * time.Second

// watchKinds logs changes of the owner's own kinds until ctx ends: the worker reads them only at its start.
func (w *Worker) watchKinds(ctx context.Context) error {
	tick := time.NewTicker(kindsInterval)
	defer tick.Stop()
	read := kindsFingerprint(w.cfg.AI.Kinds)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now := kindsFingerprint(w.cfg.AI.Kinds); now != read {
			read = now
			w.log.Warn("custom kinds changed on disk; restart the worker to load them, such as with kill -USR2 (running tasks continue)",
				slog.String("folder", w.cfg.AI.Kinds), slog.Int("pid", os.Getpid()))
		}
	}
}

// kindsFingerprint returns a text that changes with the definitions in a directory.
func kindsFingerprint(dir string) string {
	var b strings.Builder
	root := os.DirFS(dir) // dir may look like a pattern
	files, _ := fs.Glob(root, "*/kind.yaml")
	for _, name := range files {
		if info, err := fs.Stat(root, name); err == nil {
			fmt.Fprintf(&b, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

// kindsDir returns the directory of the owner's own kinds.
func (c *Config) kindsDir() string { return cmp.Or(c.AI.Kinds, filepath.Join(c.Data, "kinds")) }

// checkKinds checks that the kinds that the owner allows exist.
func (c *Config) checkKinds() error {
	if c.Kinds == nil {
		return nil
	}
	own, _ := kinds.Load(c.AI.Kinds) // newKindExecutors reports errors
	known := slices.Concat(kind.Core(), kind.NewCatalog(kinds.Definitions(own)...).Names())
	for _, name := range c.Kinds {
		if !slices.Contains(known, name) {
			hint := ""
			if near := muster.Nearest(name, known); near != "" {
				hint = " (did you mean " + near + "?)"
			}
			return muster.Errorf(muster.Invalid, "--allow-kinds: unknown kind %s%s: use %s", name, hint, strings.Join(known, ", "))
		}
	}
	return nil
}

// accepts reports whether the operator allows a kind.
func (c *Config) accepts(kind string) bool { return c.Kinds == nil || slices.Contains(c.Kinds, kind) }
