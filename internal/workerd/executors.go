package workerd

import (
	"cmp"
	"encoding/json"
	"net/url"
	"path/filepath"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/checkpoint"
	"github.com/muster-dev/muster/internal/agent/container"
	"github.com/muster-dev/muster/internal/agent/modelpool"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/kinds"
	"github.com/muster-dev/muster/internal/agent/run/noop"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/script"
	"github.com/muster-dev/muster/internal/agent/runtimes"
	"github.com/muster-dev/muster/internal/agent/transfer"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/link"
)

// newExecutors returns the executors, which share env after it is filled in, and models, which may be nil; the encoded definitions of the owner's own kinds;
// and the check of the runtimes of kinds.
func (w *Worker) newExecutors(cred link.Credentials, env *process.Deps, models *modelpool.Pool, onSaved func(muster.AttemptID, string)) ([]run.Executor, json.RawMessage, *runtimeCheck, error) {
	cfg := transfer.Config{
		Server: w.server, Credentials: cred, HTTP: w.http, Dir: filepath.Join(w.cfg.Data, "cache"), Budget: w.cfg.Cache, Rate: w.cfg.Bandwidth, Log: w.log,
	}
	if w.metrics != nil {
		cfg.OnTransfer, cfg.OnCacheLookup = w.metrics.BlobBytes, w.metrics.CacheLookup
	}
	blobs, err := transfer.New(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	w.gauges.blobs.Store(blobs)
	env.Dir, env.Transfer, env.Log = w.cfg.Data, blobs, w.log
	env.LogCap, env.AllowPrivateURLs, env.TaskTimeout = int64(w.cfg.LogCap), w.cfg.AllowPrivate, w.cfg.Allow.DefaultTimeout()
	env.Server = withoutUser(w.cfg.Server)
	env.Checkpoints = &checkpoint.Uploader{Blobs: blobs, OnSaved: onSaved, Log: w.log}
	managed, err := runtimes.New(runtimes.Config{
		Dir: w.cfg.Data, Python: w.cfg.Python, Wheels: w.cfg.Wheels, Budget: w.cfg.RuntimeDisk, UV: env.UV, Path: env.Path, Limits: env.Isolator, Log: w.log,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	processes, err := process.New(env)
	if err != nil {
		return nil, nil, nil, err
	}
	scripts, err := script.New(env)
	if err != nil {
		return nil, nil, nil, err
	}
	containers, err := process.NewKind(env, muster.KindContainer, process.KindHooks{})
	if err != nil {
		return nil, nil, nil, err
	}
	own, errs := kinds.Load(w.cfg.AI.Kinds)
	for _, err := range errs {
		w.log.Error("kind not offered: " + err.Error())
	}
	defined, customKinds, err := w.newKindExecutors(own, env, managed, models)
	engineReady := func() bool { return env.Containers != nil && env.Containers.Ready() == nil }
	checks := w.cfg.newRuntimeCheck(kinds.Definitions(own), managed, engineReady, w.log)
	return append([]run.Executor{noop.Executor{}, processes, scripts, containers}, defined...), customKinds, checks, err
}

// withoutUser returns a URL without the name and the password in it.
func withoutUser(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

func (w *Worker) newKindExecutors(own []kinds.OwnerKind, env *process.Deps, managed *runtimes.Runtimes, models *modelpool.Pool) ([]run.Executor, json.RawMessage, error) {
	var program container.ProgramCopy
	copies := filepath.Join(w.cfg.Data, "gate") // also of the entrypoint of containers with a proxy
	cfg := kinds.Config{
		Deps: env, Runtimes: managed, ModelDisk: w.cfg.ModelDisk, MissingDisk: w.missingDisk, OwnerKinds: own, Options: w.cfg.AI.environ(w.cfg.HostPolicy.Buffer()),
		Program: func(everywhere bool) (string, error) { return program.Copy(copies, everywhere) },
	}
	if models != nil {
		cfg.ModelPool = models
	}
	list, err := kinds.New(cfg)
	if err != nil || len(own) == 0 {
		return list, nil, err
	}
	customKinds, err := kind.EncodeList(kinds.Definitions(own))
	return list, customKinds, err
}

// missingDisk returns how much must be freed in the data directory, 0 if that is unknown.
func (w *Worker) missingDisk() muster.Size {
	u, err := disk.Usage(w.cfg.Data)
	if err != nil {
		return 0
	}
	return w.cfg.HostPolicy.MissingDisk(muster.DiskLoad{Free: muster.Size(u.Free), Total: muster.Size(u.Total)})
}

// newModelPool returns the pool of model servers, nil if it is disabled: then those from before a restart are stopped.
func (w *Worker) newModelPool(env *process.Deps, all muster.Size) (*modelpool.Pool, error) {
	cfg := modelpool.Config{
		Data: w.cfg.Data, TTL: cmp.Or(w.cfg.AI.CacheTTL, DefaultCacheTTL), MinFree: muster.Size(float64(all) * w.cfg.HostPolicy.Buffer()),
		Free: probe.FreeMemory, Isolator: env.Isolator, GPUs: env.GPUs, Log: w.log,
	}
	if !w.cfg.AI.CacheModels {
		modelpool.StopOrphans(cfg)
		return nil, nil //nolint:nilnil // disabled
	}
	return modelpool.New(cfg)
}
