package workerd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/container"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Values of Config.Engine other than an address.
const (
	EngineAuto = "auto"         // the engine that answers, or one that is started later
	EngineNone = probe.NoEngine // no containers
)

// DefaultImageDisk is how much of the disk images of tasks may use.
const DefaultImageDisk muster.Size = 64 << 30

func (c *Config) checkEngine() error {
	if c.ImageDisk < 0 {
		return muster.Errorf(muster.Invalid, "--image-disk must not be negative")
	}
	if c.RegistryConfig != "" {
		if _, err := os.Stat(c.RegistryConfig); err != nil {
			return muster.Errorf(muster.Invalid, "cannot read --registry-config: %w", err)
		}
	}
	switch c.Engine {
	case "", EngineAuto, EngineNone:
		return nil
	}
	e, err := docker.Open(c.Engine)
	if err != nil {
		return muster.Errorf(muster.Invalid, "--engine: %w; or use auto or none", err)
	}
	return e.Close()
}

// engineHost returns the address of the container engine, "" for none: the operator's, that of the environment as for Docker's tools,
// that of an engine that was found, or else Docker's default.
func (c *Config) engineHost(found []probe.Engine, env func(string) string) string {
	switch c.Engine {
	case "", EngineAuto:
	case EngineNone:
		return ""
	default:
		return c.Engine
	}
	if addr := env("DOCKER_HOST"); addr != "" {
		return addr
	}
	for i := range found {
		if s := found[i].Socket; s != "" {
			return "unix://" + s
		}
	}
	if runtime.GOOS == "windows" {
		return "" // Linux containers cannot mount folders of this system
	}
	return "unix:///var/run/docker.sock"
}

type engine struct {
	*container.Containers

	host     string
	log      *slog.Logger
	optional bool // it was not configured
	wasReady bool
}

// openEngine opens the container engine, and removes containers from before a restart that no recovered attempt uses. It returns nil if
// the worker has no engine.
func (w *Worker) openEngine(ctx context.Context, id agent.Identity, found []probe.Engine, devices func() []gpu.Device, recovered []run.Recovered) (*engine, error) {
	host := w.cfg.engineHost(found, os.Getenv)
	if host == "" {
		return nil, nil //nolint:nilnil // no engine
	}
	api, err := docker.Open(host)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "%w", err)
	}
	containers, err := container.New(container.Config{
		Engine: api, Worker: ContainerLabel(id, w.cfg.Data), Dir: w.cfg.Data, Budget: cmp.Or(w.cfg.ImageDisk, DefaultImageDisk),
		Credentials: w.cfg.RegistryConfig, Allow: &w.cfg.Allow, PIDs: w.cfg.Isolation.PIDs, Swap: w.cfg.AI.EnableSwap, Devices: devices, Log: w.log,
	})
	if err != nil {
		return nil, errors.Join(err, api.Close())
	}
	e := &engine{Containers: containers, host: host, log: w.log, optional: w.cfg.Engine == "" || w.cfg.Engine == EngineAuto}
	ctx, cancel := context.WithTimeout(ctx, firstSweepTimeout)
	defer cancel()
	var keep []*run.Container
	for _, h := range unreported(recovered) {
		if c := h.Start.Container; c != nil {
			keep = append(keep, c)
		}
	}
	// Without an engine, or after an error, Run repeats both.
	if err := errors.Join(containers.Check(ctx), containers.Sweep(ctx, keep)); err != nil {
		w.log.Debug("cannot sweep containers of earlier tasks yet", slog.Any("error", err))
	}
	return e, nil
}

// firstSweepTimeout is how long a worker waits at its start for the removal of containers from before a restart. The rest is removed
// later.
const firstSweepTimeout = 2 * time.Second

// ContainerLabel identifies a worker's containers. It does not change when the worker restarts, and differs from that of other workers
// with the same engine.
func ContainerLabel(id agent.Identity, data string) string {
	sum := sha256.Sum256([]byte(id.Server + "\n" + data))
	return fmt.Sprintf("%s-%x", id.Worker, sum[:4])
}

// logChange logs that the engine became ready, or why it is not.
func (e *engine) logChange(err error) {
	at := slog.String("engine", e.host)
	switch {
	case err == nil:
		e.wasReady = true
		e.log.Info("container engine is ready", at)
		if lackErr := e.AllowlistUnavailable(); lackErr != nil {
			e.log.Info("tasks in containers cannot use network: allowlist", slog.Any("error", lackErr))
		}
	case !e.wasReady && e.optional && errors.Is(err, fs.ErrNotExist):
		e.log.Debug("no container engine found, containers are not offered", at)
	default:
		e.log.Warn("container engine is not ready, containers are not offered", at, slog.Any("error", err))
	}
}

// run maintains the engine, and offers the kind container while it is ready.
func (e *engine) run(a *agent.Agent) func(context.Context) error {
	return func(ctx context.Context) error {
		return e.Run(ctx, func(why error) {
			e.logChange(why)
			a.EnableKind(muster.KindContainer, why == nil)
		})
	}
}
