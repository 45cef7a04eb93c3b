package daemon

import (
	"errors"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/hostpolicy"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/policy"
	"github.com/muster-dev/muster/internal/workerd"
)

// aiOptions configures the AI kinds.
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
		app.Option{Name: "kinds-dir", Value: "path", Usage: "Directory with custom kinds, each a directory with a kind.yaml (default: kinds in the data directory)", Group: group}.WithEnv().StringVar(&ai.Kinds),
		option("cuda-streams", "Number of CUDA streams per GPU for inference and embedding, one batch each (default: 1)").IntVar(&ai.CUDAStreams, 1, 1<<10),
		option("optimize-for", "Default batching for jobs without batch_size: throughput or latency").
			EnumVar(&ai.OptimizeFor, workerd.OptimizeThroughput, workerd.OptimizeLatency),
		option("mixed-precision", "Compute in bf16 or fp16 on GPUs unless a job sets a precision").BoolVar(&ai.MixedPrecision),
		option("cache-models", "Keep models of inference and embedding loaded between tasks, until the memory is needed").BoolVar(&ai.CacheModels),
		option("cache-models-ttl", "Unload a model this long after its last task (default: 10m)").DurationVar(&c.ttl),
		option("enable-swap", "Let tasks use swap beyond their memory, and models be offloaded to disk").BoolVar(&ai.EnableSwap),
	}
}

// config returns the options with absolute paths.
func (c *aiOptions) config() (workerd.AI, error) {
	ai := c.ai
	ai.CacheTTL = c.ttl.Std()
	if ai.Kinds == "" {
		return ai, nil
	}
	var err error
	if ai.Kinds, err = filepath.Abs(ai.Kinds); err != nil {
		return ai, muster.Errorf(muster.Invalid, "absolute path of %s: %w", ai.Kinds, err)
	}
	return ai, nil
}

// hostPolicyOptions configures how a worker shares its machine with the owner.
type hostPolicyOptions struct{ hostpolicy.Options }

func newHostPolicyOptions() hostPolicyOptions {
	return hostPolicyOptions{hostpolicy.Options{AfterHours: hostpolicy.Finish}}
}

func (s *hostPolicyOptions) flags(group string) []cli.Flag {
	option := func(name, usage string) app.Option {
		return app.Option{Name: name, Usage: usage, Group: group}.WithEnv()
	}
	return []cli.Flag{
		app.Var(option("profile", "Preset for the options of this group: benchmark, test or light; explicit options take precedence"),
			&s.Profile, hostpolicy.ParseProfile, func(p string) string { return p }),
		percentVar(option("max-cpu-percent", "Take no new tasks while the CPU utilization of the host is higher"), &s.MaxCPU),
		percentVar(option("max-memory-percent", "Take no new tasks while the memory utilization of the host is higher"), &s.MaxMemory),
		percentVar(option("max-gpu-percent", "Take no new tasks while the GPU utilization is higher"), &s.MaxGPU),
		app.Var(app.Option{Name: "memory-buffer", Value: "fraction", Usage: "Fraction of the host's memory to keep free, such as 0.2: it is not offered, and no new tasks are taken while less is free", Group: group}.WithEnv(),
			&s.MemoryBuffer, parseFraction, app.FormatOptional[float64]),
		app.Var(app.Option{Name: "min-free-disk", Value: "bytes", Usage: "Take no new tasks while less disk space is free in the data directory; 0 means no limit (default: 1GiB, or 5% of a smaller disk)", Group: group}.WithEnv(),
			&s.MinFreeDisk, parseDiskLimit, app.FormatOptional),
		option("cool-down", "Time below the limits before the worker accepts tasks again (default: 30s)").OptionalDurationVar(&s.CoolDown),
		app.Var(option("hours", `Take tasks only at these times of the week, such as "mon-fri 18:00-08:00, sat, sun"`),
			&s.Hours, hostpolicy.ParseHours, formatHours),
		option("hours-then", "Action for running tasks when the hours end: finish or preempt").EnumVar(&s.AfterHours, hostpolicy.Finish, hostpolicy.Preempt),
		option("yield-to-owner", "Freeze or move tasks whose GPU is used by programs of the machine's owner").BoolVar(&s.Yield),
	}
}

// percentVar returns an option with a number over 0 and up to 100.
func percentVar(o app.Option, dst **float64) cli.Flag {
	o.Value = "percent"
	return app.Var(o, dst, func(s string) (*float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f > 0 && f <= 100) {
			return nil, errors.New("must be a percentage over 0 and up to 100, such as 80")
		}
		return &f, nil
	}, app.FormatOptional)
}

func parseFraction(s string) (*float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0 && f < 1) || math.Signbit(f) {
		return nil, errors.New("must be a fraction from 0 to below 1, such as 0.2")
	}
	return &f, nil
}

func parseDiskLimit(s string) (*muster.Size, error) {
	n, err := muster.ParseSize(s)
	if err == nil && n < 0 {
		err = errors.New("must be a size such as 2GiB, or 0 for no limit")
	}
	return &n, err
}

func formatHours(h *hostpolicy.Hours) string {
	if h == nil {
		return ""
	}
	return h.String()
}

// isolationOptions configures the sandbox of tasks.
type isolationOptions struct {
	limits  isolation.Config
	sandbox string
}

func newIsolationOptions() isolationOptions { return isolationOptions{sandbox: string(isolation.Auto)} }

func (c *isolationOptions) flags(group string) []cli.Flag {
	l := &c.limits
	return []cli.Flag{
		app.Option{Name: "task-user", Value: "user", Usage: "Run tasks as this user, if the worker runs as root (default: a separate user for each task)", Group: group}.WithEnv().StringVar(&l.TaskUser),
		app.Option{Name: "sandbox", Usage: "Restrict tasks to their own files: auto (if the kernel supports it), off, or strict (refuse tasks otherwise)", Group: group}.
			WithEnv().EnumVar(&c.sandbox, string(isolation.Auto), string(isolation.Off), string(isolation.Strict)),
		app.Option{Name: "allow-read", Value: "path", Usage: "Let tasks read this path; may be repeated", Group: group}.RepeatedVar(&l.Read),
		app.Option{Name: "allow-write", Value: "path", Usage: "Let tasks write to this path; may be repeated", Group: group}.RepeatedVar(&l.Write),
		app.Option{Name: "task-pids", Usage: "Maximum number of processes and threads of a task that sets no pids (default: 4096)", Group: group}.
			WithEnv().IntVar(&l.PIDs, 1, 1<<22),
		app.Var(app.Option{Name: "task-disk", Value: "bytes", Usage: "Maximum disk space of a task that sets no disk; 0 means no limit (default: half of the free space, at least 1GiB)", Group: group}.WithEnv(),
			&l.Disk, parseDiskLimit, app.FormatOptional),
	}
}

// config returns the options with absolute paths.
func (c *isolationOptions) config() (isolation.Config, error) {
	cfg := c.limits
	cfg.Sandbox = isolation.Mode(c.sandbox)
	for _, list := range []*[]string{&cfg.Read, &cfg.Write} {
		abs := make([]string, len(*list))
		for i, path := range *list {
			var err error
			if abs[i], err = filepath.Abs(path); err != nil {
				return cfg, muster.Errorf(muster.Invalid, "absolute path of %s: %w", path, err)
			}
		}
		*list = abs
	}
	return cfg, nil
}

// policyOptions is what the owner of a worker allows.
type policyOptions struct {
	muster.Allow
	kinds     []string
	trustKeys string
}

func (c *policyOptions) flags(group string) []cli.Flag {
	option := func(name, usage string) app.Option {
		return app.Option{Name: name, Usage: usage, Group: group}.WithEnv()
	}
	return []cli.Flag{
		policyListVar(option("allow-kinds", "Allowed kinds of tasks, such as process,inference (default: all)"), &c.kinds, workerd.ParseKind),
		policyListVar(option("allow-images", "Allowed container images, with * as a wildcard, such as 'ghcr.io/acme/*' (default: all)"), &c.Images, policy.ParseImage),
		policyListVar(option("allow-users", "Allowed users of containers, such as 1000:1000, or default for the image's (default: all)"), &c.Users, policy.ParseUser),
		policyListVar(option("allow-mounts", "Directories that containers may mount, with :ro for read-only, such as /data:ro (default: none)"), &c.Mounts, policy.ParseMount),
		policyListVar(option("allow-env", "Environment variables that tasks may set, with * as a wildcard, such as 'HF_*' (default: all)"), &c.Env, policy.ParseVariable),
		policyListVar(option("allow-secrets", "Secrets that tasks may have here, with * as a wildcard, such as 'HF_*', or none (default: all)"), &c.Secrets, policy.ParseVariable),
		option("allow-host-network", "Let containers use the host's network").BoolVar(&c.HostNetwork),
		option("task-timeout", "Timeout of tasks that set none (default: --max-task-timeout)").DurationVar(&c.TaskTimeout),
		option("max-task-timeout", "Refuse tasks with a longer timeout (default: unlimited)").DurationVar(&c.MaxTaskTimeout),
		app.Option{Name: "trust-keys", Value: "path", Usage: "File with SSH public keys, as authorized_keys or allowed_signers: run only jobs that one of them signed, whatever the server says", Group: group}.WithEnv().StringVar(&c.trustKeys),
	}
}

// policyListVar returns an option with a list: it may be repeated, and the single item none makes it empty.
func policyListVar(o app.Option, dst *[]string, parse func(string) (string, error)) cli.Flag {
	o.Value = "list"
	return app.Var(o, dst, func(s string) ([]string, error) {
		if s == policy.NoneKeyword {
			return []string{}, nil
		}
		all := *dst
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part == "" {
				return nil, errors.New("an item of the list is empty: use " + policy.NoneKeyword + " to allow nothing")
			}
			item, err := parse(part)
			if err != nil {
				return nil, err
			}
			all = append(all, item)
		}
		return all, nil
	}, func(all []string) string { return strings.Join(all, ",") })
}
