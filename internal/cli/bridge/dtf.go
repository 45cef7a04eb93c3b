package bridge

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/dialect/dtf"
	"github.com/muster-dev/muster/internal/workerd"
)

// dtfOptions are the options of DTF's workers, with the documented names, variables and defaults.
type dtfOptions struct {
	coordinator, hostname string
	cfg                   dtf.BridgeConfig
	key, token            app.Secret
	secret                string // file
	heartbeat, health     float64
	interval, timeout     float64 // seconds
	profile               string
	cpu, memory, gpu      float64 // percent
	buffer                float64
	ai                    workerd.AI
	recover, reset        bool
	logDir                string
	verbose               bool
	dropIn                bool

	secretsMu sync.Mutex // protects the secrets
}

func newDTF() Adapter {
	return &dtfOptions{
		coordinator: dtf.DefaultCoordinator, heartbeat: dtf.DefaultHeartbeat.Seconds(), health: dtf.DefaultHealthCheck.Seconds(),
		interval: dtf.DefaultReconnectInterval.Seconds(), cfg: dtf.BridgeConfig{ReconnectAttempts: dtf.DefaultReconnectAttempts},
		profile: "test", cpu: 95, memory: 95, gpu: 95, buffer: 0.1,
	}
}

func (o *dtfOptions) Flags(dropIn bool) []cli.Flag {
	o.dropIn = dropIn
	const group = "DTF"
	c := &o.cfg
	list := []cli.Flag{
		app.Option{Name: "coordinator", Value: "urls", Env: "DT_COORDINATOR_URL", Usage: "Coordinator URLs, comma-separated", Group: group}.StringVar(&o.coordinator),
		app.Option{Name: "name", Env: "DT_WORKER_NAME", Usage: "Name of the worker (default: the host name)", Group: group}.StringVar(&c.Name),
		app.Option{Name: "hostname", Usage: "Same as --name", Group: group}.StringVar(&o.hostname),
		app.Option{Name: "worker-id", Value: "id", Usage: "Id of the worker (default: the previous one, or a new UUID)", Group: group}.StringVar(&c.WorkerID),
	}
	list = append(list, app.Option{Name: "api-key", Env: "DT_API_KEY", Usage: "API key", Group: group}.SecretVars(&o.key, "API key")...)
	token := "token"
	maxTasksText := "2, 4 or 8, by --profile"
	if !dropIn {
		maxTasksText = "the slots of the fleet"
		token = "coordinator-token" // --token is that of the Muster server
	}
	list = append(list, app.Option{Name: token, Env: "DT_TOKEN", Usage: "JWT, in place of an API key", Group: group}.SecretVars(&o.token, "JWT")...)
	list = append(list,
		app.Option{Name: "security-config", Value: "path", Usage: "Sign messages with the secret in this file: the coordinator's security_config.json, or a file with the secret as its only line", Group: group}.StringVar(&o.secret),
		app.Option{Name: "db-path", Value: "path", Env: "DT_DB_PATH", Usage: "Write results to this SQLite database, which duckdb can open", Group: group}.StringVar(&c.ResultsFile),
		app.Option{Name: "tags", Usage: "Tags of the worker", Group: group}.ListVar(&c.Tags),
		app.Option{Name: "heartbeat-interval", Value: "seconds", Usage: "Heartbeat interval", Group: group}.FloatVar(&o.heartbeat, 86400),
		app.Option{Name: "health-check-interval", Value: "seconds", Usage: "Interval of health checks of workers", Group: group}.FloatVar(&o.health, 86400),
		app.Option{Name: "reconnect-attempts", Usage: "Exit after this number of attempts if no coordinator has ever accepted this worker", Group: group}.IntVar(&c.ReconnectAttempts, 1, 1e6),
		app.Option{Name: "reconnect-interval", Value: "seconds", Usage: "Delay before the next attempt, doubled each time, up to a minute", Group: group}.FloatVar(&o.interval, 86400),
		app.Option{Name: "high-availability", Usage: "Switch to another coordinator when one fails, never exit, and report health twice as often", Group: group}.BoolVar(&c.HighAvailability),
		app.Option{Name: "coordinator-registry", Value: "path", Usage: "File with more coordinators, created if missing", Group: group}.StringVar(&c.Registry),
		app.Option{Name: "max-concurrent-tasks", Usage: "Maximum number of concurrent tasks (default: " + maxTasksText + ")", Group: group}.IntVar(&c.MaxTasks, 1, 1000),
		app.Option{Name: "task-timeout", Value: "seconds", Usage: "Maximum run time of a task (default: unlimited)", Group: group}.FloatVar(&o.timeout, 1e8),
		app.Option{Name: "tests", Value: "path", Usage: "Directory to send with tasks that run a test in it (default with muster worker dtf: the current one)", Group: group}.StringVar(&c.TestsDir),
		app.Option{Name: "recover", Usage: "With --reset-state, keep unreported tasks", Group: group}.BoolVar(&o.recover),
		app.Option{Name: "reset-state", Usage: "Delete the worker's id, token and tasks of previous runs", Group: group}.BoolVar(&o.reset),
		app.Option{Name: "log-dir", Value: "path", Usage: "Also log to a file in this directory", Group: group}.StringVar(&o.logDir),
		app.Option{Name: "verbose", Usage: "Log at debug level", Group: group}.BoolVar(&o.verbose),
	)
	if dropIn {
		list = append(list, o.machineFlags("DTF, this machine")...)
	}
	return list
}

// machineFlags returns the options of the machine, which muster bridge does not have.
func (o *dtfOptions) machineFlags(group string) []cli.Flag {
	return []cli.Flag{
		app.Option{Name: "profile", Usage: "Preset for concurrent tasks: benchmark (2), test (4) or light (8)", Group: group}.EnumVar(&o.profile, "benchmark", "test", "light"),
		app.Option{Name: "max-cpu-percent", Value: "percent", Usage: "Take no new tasks while the CPU utilization is higher", Group: group}.FloatVar(&o.cpu, 100),
		app.Option{Name: "max-memory-percent", Value: "percent", Usage: "Take no new tasks while the memory utilization is higher", Group: group}.FloatVar(&o.memory, 100),
		app.Option{Name: "max-gpu-percent", Value: "percent", Usage: "Take no new tasks while the GPU utilization is higher", Group: group}.FloatVar(&o.gpu, 100),
		app.Option{Name: "memory-buffer", Value: "fraction", Usage: "Fraction of the memory to keep free, such as 0.2", Group: group}.FloatVar(&o.buffer, 0.99),
		app.Option{Name: "enable-swap", Usage: "Let tasks use swap beyond their memory", Group: group}.BoolVar(&o.ai.EnableSwap),
		app.Option{Name: "cache-models", Usage: "Keep models loaded between tasks", Group: group}.BoolVar(&o.ai.CacheModels),
		app.Option{Name: "cuda-streams", Usage: "Number of CUDA streams per GPU", Group: group}.IntVar(&o.ai.CUDAStreams, 1, 1<<10),
		app.Option{Name: "optimize-for", Usage: "Default batching: throughput or latency", Group: group}.EnumVar(&o.ai.OptimizeFor, workerd.OptimizeThroughput, workerd.OptimizeLatency),
		app.Option{Name: "mixed-precision", Usage: "Compute in bf16 or fp16 unless a task sets a precision", Group: group}.BoolVar(&o.ai.MixedPrecision),
	}
}

func (o *dtfOptions) Notes() []string {
	var notes []string
	if o.recover && !o.reset {
		notes = append(notes, "--recover has no effect without --reset-state: tasks are always recovered after a restart")
	}
	if strings.HasSuffix(o.cfg.ResultsFile, ".duckdb") {
		notes = append(notes, "--db-path: the file is a SQLite database, open it with: duckdb "+o.cfg.ResultsFile)
	}
	return notes
}

// WorkerName implements NamedWorker: several workers on a machine need names or ids.
func (o *dtfOptions) WorkerName() string { return cmp.Or(o.cfg.WorkerID, o.cfg.Name, o.hostname) }

func (o *dtfOptions) slots() int {
	return cmp.Or(o.cfg.MaxTasks, map[string]int{"benchmark": 2, "test": 4, "light": 8}[o.profile])
}

func (o *dtfOptions) ConfigureWorker(w *workerd.Config) error {
	if err := o.readSecrets(); err != nil { // tasks must not find them in the environment
		return err
	}
	w.Name, w.Tags, w.Slots = cmp.Or(o.cfg.Name, o.hostname), o.cfg.Tags, o.slots()
	w.MaxTasks = o.slots()
	w.AI = o.ai
	w.HostPolicy.Profile = o.profile
	for _, limit := range []struct {
		name    string
		percent float64
		to      **float64
	}{{"cpu", o.cpu, &w.HostPolicy.MaxCPU}, {"memory", o.memory, &w.HostPolicy.MaxMemory}, {"gpu", o.gpu, &w.HostPolicy.MaxGPU}} {
		if limit.percent <= 0 {
			return muster.Errorf(muster.Invalid, "--max-%s-percent must be over 0 and up to 100", limit.name)
		}
		*limit.to = &limit.percent
	}
	w.HostPolicy.MemoryBuffer = &o.buffer
	return nil
}

// readSecrets reads the key and the token and removes them from the environment.
func (o *dtfOptions) readSecrets() error {
	key, err := o.key.ReadAndUnset()
	if err != nil {
		return err
	}
	token, err := o.token.ReadAndUnset()
	if err != nil {
		return err
	}
	o.cfg.APIKey, o.cfg.Token = cmp.Or(key, o.cfg.APIKey), cmp.Or(token, o.cfg.Token)
	return nil
}

func (o *dtfOptions) Run(ctx context.Context, deps Deps) (err error) {
	o.secretsMu.Lock() // Run is called for several workers at once
	err = o.readSecrets()
	cfg := o.cfg
	o.secretsMu.Unlock()
	if err != nil {
		return err
	}
	for url := range strings.SplitSeq(o.coordinator, ",") {
		if url = strings.TrimSpace(url); url != "" {
			cfg.Coordinators = append(cfg.Coordinators, url)
		}
	}
	cfg.Name = cmp.Or(cfg.Name, o.hostname)
	if deps.Worker != "" {
		cfg.Name, cfg.WorkerID = deps.Worker, cmp.Or(cfg.WorkerID, "muster")+"-"+deps.ID
	}
	if o.secret != "" {
		if cfg.Secret, err = dtf.ReadSecret(o.secret); err != nil {
			return err
		}
	}
	cfg.Heartbeat, cfg.HealthCheck, cfg.ReconnectInterval, cfg.TaskTimeout = seconds(o.heartbeat), seconds(o.health), seconds(o.interval), seconds(o.timeout)
	if cfg.TestsDir == "" && o.dropIn {
		cfg.TestsDir = projectDir()
	}
	if o.dropIn {
		cfg.MaxTasks = o.slots()
	}
	if o.reset {
		if err := resetDTF(deps.Dir, o.recover); err != nil {
			return err
		}
	}
	log, closeLog, err := o.logger(ctx, deps)
	if err != nil {
		return err
	}
	defer closeLog()
	cfg.Dir, cfg.Version, cfg.Stop = deps.Dir, app.CurrentBuild().Version, deps.AcceptCtx.Done()
	deps.Log = log
	cfg.Core = deps.coreConfig()
	b, err := dtf.NewBridge(ctx, cfg)
	if err != nil {
		return err
	}
	return b.Run(ctx)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// projectDir returns the current directory, "" for the home directory and the root.
func projectDir() string {
	dir, err := os.Getwd()
	home, _ := os.UserHomeDir() // "" where there is none
	if err != nil || dir == filepath.Clean(home) || dir == filepath.Dir(dir) {
		return ""
	}
	return dir
}

// resetDTF deletes the identity of the worker, and its tasks unless keepTasks is set.
func resetDTF(dir string, keepTasks bool) error {
	names := []string{"worker.json", "jobs", "offers"}
	if keepTasks {
		names = names[:1]
	}
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return muster.Errorf(muster.Unavailable, "--reset-state: %w", err)
		}
	}
	return nil
}

const maxLogFile = 10 << 20

// logger returns the logger of deps with --verbose and --log-dir applied.
func (o *dtfOptions) logger(ctx context.Context, deps Deps) (*slog.Logger, func(), error) {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	handlers := []slog.Handler{deps.Log.Handler()}
	if o.verbose && !deps.Log.Enabled(ctx, slog.LevelDebug) {
		handlers[0] = slog.NewTextHandler(term.NewScreen(os.Stderr, os.Getenv), &slog.HandlerOptions{Level: level})
	}
	if o.logDir == "" {
		return slog.New(handlers[0]), func() {}, nil
	}
	if err := os.MkdirAll(o.logDir, 0o750); err != nil {
		return nil, nil, muster.Errorf(muster.Invalid, "--log-dir: %w", err)
	}
	path := filepath.Join(o.logDir, "worker.log")
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogFile {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, nil, muster.Errorf(muster.Unavailable, "--log-dir: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640) //nolint:gosec // the operator chooses the path, and a group may read it
	if err != nil {
		return nil, nil, muster.Errorf(muster.Invalid, "--log-dir: %w", err)
	}
	handlers = append(handlers, slog.NewTextHandler(io.Writer(f), &slog.HandlerOptions{Level: level}))
	return slog.New(slog.NewMultiHandler(handlers...)), func() { _ = f.Close() }, nil
}
