package workerd

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run/kinds"
	"github.com/muster-dev/muster/internal/kind"
)

// AI says how tasks of defined kinds are run.
type AI struct {
	Kinds          string        // folder of the owner's own kinds; "" means the folder kinds of the data dir
	CUDAStreams    int           // on which a task may compute at once; 0 leaves it to the task
	OptimizeFor    string        // OptimizeThroughput or OptimizeLatency; "" leaves it to the task
	MixedPrecision bool          // where a task does not say otherwise
	CacheModels    bool          // models stay loaded between tasks
	CacheTTL       time.Duration // for how long; 0 means DefaultCacheTTL
	EnableSwap     bool          // tasks may use the machine's swap
}

// What a worker is to be good at.
const (
	OptimizeThroughput = "throughput"
	OptimizeLatency    = "latency"
)

// DefaultCacheTTL is for how long a model stays loaded that no task uses.
const DefaultCacheTTL = 10 * time.Minute

func (ai *AI) check() error {
	switch {
	case ai.CUDAStreams < 0 || ai.CacheTTL < 0:
		return muster.Errorf(muster.Invalid, "--cuda-streams and --cache-models-ttl must not be negative")
	case !slices.Contains([]string{"", OptimizeThroughput, OptimizeLatency}, ai.OptimizeFor):
		return muster.Errorf(muster.Invalid, "--optimize-for is %q: write throughput or latency", ai.OptimizeFor)
	}
	return nil
}

// environ tells the programs of tasks what they are to keep to. buffer is the share of the memory that they leave free, of GPUs, too.
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

var kindPattern = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// ParseKind reads an entry of Config.Kinds. Which kinds the owner adds is not known yet.
func ParseKind(s string) (string, error) {
	if kindPattern.MatchString(s) {
		return s, nil
	}
	return "", muster.Errorf(muster.Invalid, "%q is no kind: write lower-case words such as script or mnist_training", s)
}

// loadOwnKinds reads the owner's own kinds.
func (w *Worker) loadOwnKinds() []kinds.OwnerKind {
	own, errs := kinds.Load(w.cfg.AI.Kinds)
	for _, err := range errs {
		w.log.Error("a kind is not offered: " + err.Error())
	}
	return own
}

// kindsInterval is the time between looks at the folder of own kinds.
const kindsInterval = 15 * time.Second

// watchKinds tells, until ctx ends, when the owner's own kinds are no longer those that are offered: they are read when the worker starts.
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
			w.log.Warn("the owner's own kinds have changed: they are read when the worker starts anew, for which kill -USR2 is enough, and tasks go on",
				slog.String("folder", w.cfg.AI.Kinds), slog.Int("pid", os.Getpid()))
		}
	}
}

// kindsFingerprint is another text when the definitions in a folder are others.
func kindsFingerprint(dir string) string {
	var b strings.Builder
	root := os.DirFS(dir) // whose name may look like a pattern
	files, _ := fs.Glob(root, "*/kind.yaml")
	for _, name := range files {
		if info, err := fs.Stat(root, name); err == nil {
			fmt.Fprintf(&b, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

// checkKinds looks whether there are all kinds that the owner names.
func (c *Config) checkKinds() error {
	if c.Kinds == nil {
		return nil
	}
	own, _ := kinds.Load(c.AI.Kinds) // what is wrong with one is told when they are offered
	known := slices.Concat(kind.Core(), kind.NewCatalog(kinds.Definitions(own)...).Names())
	for _, name := range c.Kinds {
		if !slices.Contains(known, name) {
			hint := ""
			if near := muster.Nearest(name, known); near != "" {
				hint = " (did you mean " + near + "?)"
			}
			return muster.Errorf(muster.Invalid, "--allow-kinds: there is no kind %s%s: there are %s", name, hint, strings.Join(known, ", "))
		}
	}
	return nil
}

// accepts reports whether the operator lets the worker take a kind.
func (c *Config) accepts(kind string) bool { return c.Kinds == nil || slices.Contains(c.Kinds, kind) }
