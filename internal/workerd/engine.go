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

// Words of Config.Engine that are no address.
const (
	EngineAuto = "auto"         // where one answers, or else may be started later
	EngineNone = probe.NoEngine // no containers are run
)

// DefaultImageDisk is how much of the disk images may take that tasks brought here.
const DefaultImageDisk muster.Size = 64 << 30

// checkEngine says what is wrong with what the operator says of engines.
func (c *Config) checkEngine() error {
	if c.ImageDisk < 0 {
		return muster.Errorf(muster.Invalid, "--image-disk must not be negative")
	}
	if c.RegistryConfig != "" {
		if _, err := os.Stat(c.RegistryConfig); err != nil {
			return muster.Errorf(muster.Invalid, "--registry-config cannot be read: %w", err)
		}
	}
	switch c.Engine {
	case "", EngineAuto, EngineNone:
		return nil
	}
	e, err := docker.Open(c.Engine)
	if err != nil {
		return muster.Errorf(muster.Invalid, "--engine: %w; or write auto or none", err)
	}
	return e.Close()
}

// engineHost is where the container engine is, "" for none: where the operator says, or the environment as for
// Docker's own tools, or where one was found, or else where one would be.
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
		return "" // its containers of Linux do not have our folders
	}
	return "unix:///var/run/docker.sock"
}

// engine is the worker's container engine, with what is said of it.
type engine struct {
	*container.Containers

	host     string
	log      *slog.Logger
	optional bool // nobody said that there is one
	wasReady bool // it was ready
}

// openEngine opens the container engine, and removes the containers that earlier lives left and nobody holds.
// It is nil if the worker is to have none.
func (w *Worker) openEngine(ctx context.Context, id agent.Identity, found []probe.Engine, devices func() []gpu.Device, recovered []run.Recovered) (*engine, error) {
	host := w.cfg.engineHost(found, os.Getenv)
	if host == "" {
		return nil, nil //nolint:nilnil // none
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
	// Where there is no engine yet, or it fails, both are done again by Run.
	if err := errors.Join(containers.Check(ctx), containers.Sweep(ctx, keep)); err != nil {
		w.log.Debug("containers of earlier tasks are not swept yet", slog.Any("error", err))
	}
	return e, nil
}

// firstSweepTimeout is how long a worker waits at its start for the containers of its earlier life to be
// removed. What takes longer goes on later.
const firstSweepTimeout = 2 * time.Second

// ContainerLabel is how a worker's containers are known, in all of its lives and to no other worker of the
// same engine.
func ContainerLabel(id agent.Identity, data string) string {
	sum := sha256.Sum256([]byte(id.Server + "\n" + data))
	return fmt.Sprintf("%s-%x", id.Worker, sum[:4])
}

// logChange says that the engine became ready, or why it is not.
func (e *engine) logChange(err error) {
	at := slog.String("engine", e.host)
	switch {
	case err == nil:
		e.wasReady = true
		e.log.Info("containers are run", at)
		if lackErr := e.AllowlistUnavailable(); lackErr != nil {
			e.log.Info("but tasks in them with network: allowlist fail", slog.Any("error", lackErr))
		}
	case !e.wasReady && e.optional && errors.Is(err, fs.ErrNotExist):
		e.log.Debug("no containers are run: there is no engine", at)
	default:
		e.log.Warn("no containers are run until the engine answers", at, slog.Any("error", err))
	}
}

// run keeps the engine in use, and the kind that needs it offered while it is ready. A nil engine has
// nothing to do.
func (e *engine) run(o *offers) func(context.Context) error {
	return func(ctx context.Context) error {
		if e == nil {
			return nil
		}
		return e.Run(ctx, func(why error) {
			e.logChange(why)
			o.setEnabled(muster.KindContainer, why == nil)
		})
	}
}
