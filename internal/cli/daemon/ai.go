package daemon

import (
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/workerd"
)

// aiOptions is how a worker runs the AI kinds.
type aiOptions struct {
	ai  workerd.AI
	ttl muster.Duration
}

func (c *aiOptions) flags(group string) []cli.Flag {
	ai := &c.ai
	option := func(name, usage string) app.Option {
		return app.Option{Name: name, Usage: usage, Group: group}.WithEnv()
	}
	return []cli.Flag{
		option("kinds-dir", "offer the kinds in this `FOLDER`, each a folder with a kind.yaml (default: kinds in the data folder)").StringVar(&ai.Kinds),
		option("cuda-streams", "let inference and embedding compute this `NUMBER` of batches at once on a GPU, each on a CUDA stream (default: 1)").IntVar(&ai.CUDAStreams, 1, 1<<10),
		option("optimize-for", "be good at `WHAT` where a job gives no batch_size: throughput, in larger batches, or latency, of each item").
			EnumVar(&ai.OptimizeFor, workerd.OptimizeThroughput, workerd.OptimizeLatency),
		option("mixed-precision", "compute in bf16, or else fp16, on a GPU where a job says precision: auto or nothing").BoolVar(&ai.MixedPrecision),
		option("cache-models", "keep the models of inference and embedding loaded between tasks, until others need the memory").BoolVar(&ai.CacheModels),
		option("cache-models-ttl", "keep a model loaded for this `DURATION` after its last task (default: 10m)").DurationVar(&c.ttl),
		option("enable-swap", "let tasks use the machine's swap beyond their memory, and models be spread over the disk").BoolVar(&ai.EnableSwap),
	}
}

// config returns what was asked for, with paths from where the command was given.
func (c *aiOptions) config() (workerd.AI, error) {
	ai := c.ai
	ai.CacheTTL = c.ttl.Std()
	if ai.Kinds == "" {
		return ai, nil
	}
	var err error
	if ai.Kinds, err = filepath.Abs(ai.Kinds); err != nil {
		return ai, muster.Errorf(muster.Invalid, "%s has no absolute path: %w", ai.Kinds, err)
	}
	return ai, nil
}
