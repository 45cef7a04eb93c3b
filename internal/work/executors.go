package work

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/container"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/kinds"
	"github.com/muster-dev/muster/internal/agent/run/noop"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/script"
	"github.com/muster-dev/muster/internal/agent/runtimes"
	"github.com/muster-dev/muster/internal/agent/save"
	"github.com/muster-dev/muster/internal/agent/transfer"
	"github.com/muster-dev/muster/internal/agent/warm"
	"github.com/muster-dev/muster/internal/kind"
)

// executors makes the executors, which share env once it is filled in, and what the server is told of the owner's own kinds.
func (w *Worker) executors(id agent.Identity, env *run.Env, saved func(muster.AttemptID, string)) ([]run.Executor, json.RawMessage, error) {
	blobs, err := transfer.New(transfer.Config{
		Server: w.server, Key: id.Key, HTTP: w.http, Dir: filepath.Join(w.cfg.Data, "cache"), Budget: w.cfg.Cache, Rate: w.cfg.Bandwidth, Log: w.log, Moved: w.moved(), Cached: w.cached(),
	})
	if err != nil {
		return nil, nil, err
	}
	w.parts.blobs.Store(blobs)
	env.Dir, env.Transfer, env.Log = w.cfg.Data, blobs, w.log
	env.LogCap, env.AllowPrivate = int64(w.cfg.LogCap), w.cfg.AllowPrivate
	env.Checkpoints = save.New(save.Config{Blobs: blobs, Saved: saved, Log: w.log})
	if env.Runtimes, err = runtimes.New(runtimes.Config{
		Dir: w.cfg.Data, Python: w.cfg.Python, Wheels: w.cfg.Wheels, Budget: w.cfg.RuntimeDisk, UV: env.UV, Path: env.Path, Limits: env.Limits, Log: w.log,
	}); err != nil {
		return nil, nil, err
	}
	processes, err := process.New(env)
	if err != nil {
		return nil, nil, err
	}
	scripts, err := script.New(env)
	if err != nil {
		return nil, nil, err
	}
	containers, err := process.NewKind(env, muster.KindContainer, process.Extras{})
	if err != nil {
		return nil, nil, err
	}
	defined, told, err := w.defined(env)
	return append([]run.Executor{noop.New(), processes, scripts, containers}, defined...), told, err
}

// defined makes the executors of defined kinds.
func (w *Worker) defined(env *run.Env) ([]run.Executor, json.RawMessage, error) {
	own := w.own()
	var program container.Program
	copies := filepath.Join(w.cfg.Data, "gate") // with that of containers that wait for their proxy
	list, err := kinds.New(kinds.Config{
		Env: env, Own: own, Options: w.cfg.AI.environ(w.cfg.Share.Buffer()),
		Program: func(everywhere bool) (string, error) {
			if everywhere {
				return program.Everywhere(copies)
			}
			return program.Copy(copies)
		},
	})
	if err != nil || len(own) == 0 {
		return list, nil, err
	}
	told, err := kind.EncodeList(kinds.Kinds(own))
	return list, told, err
}

// warm makes the keeper of models that stay loaded, nil if the owner does not want it: then those of an earlier life are ended.
func (w *Worker) warm(env *run.Env, all muster.Size) (*warm.Keeper, error) {
	cfg := warm.Config{
		Data: w.cfg.Data, TTL: w.cfg.AI.CacheTTL, Spare: muster.Size(float64(all) * w.cfg.Share.Buffer()),
		Free: probe.FreeMemory, Limits: env.Limits, GPUs: env.GPUs, Log: w.log,
	}
	if !w.cfg.AI.CacheModels {
		warm.End(cfg)
		return nil, nil //nolint:nilnil // none
	}
	if cfg.TTL == 0 {
		cfg.TTL = DefaultCacheTTL
	}
	return warm.New(cfg)
}

// keepWarm has a keeper, nil for none, do its work until ctx ends.
func keepWarm(k *warm.Keeper) func(context.Context) error {
	return func(ctx context.Context) error {
		if k == nil {
			return nil
		}
		return k.Run(ctx)
	}
}
