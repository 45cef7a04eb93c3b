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
	"github.com/muster-dev/muster/internal/dialect/dtf"
	"github.com/muster-dev/muster/internal/workerd"
)

// dtfOptions are those of DTF's workers, by the names, variables and defaults of their guide.
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

	secretsMu sync.Mutex // of the secrets
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
		app.Option{Name: "coordinator", Env: "DT_COORDINATOR_URL", Usage: "the `URL` of the coordinator; several are comma-separated", Group: group}.StringVar(&o.coordinator),
		app.Option{Name: "name", Env: "DT_WORKER_NAME", Usage: "join with this `NAME` (default: the host's)", Group: group}.StringVar(&c.Name),
		app.Option{Name: "hostname", Usage: "join with this `NAME`, the same as --name", Group: group}.StringVar(&o.hostname),
		app.Option{Name: "worker-id", Usage: "join with this `ID` (default: the previous one, or a new UUID)", Group: group}.StringVar(&c.WorkerID),
	}
	list = append(list, app.Option{Name: "api-key", Env: "DT_API_KEY", Usage: "authenticate with this `KEY`", Group: group}.SecretVars(&o.key, "the API key")...)
	token := "token"
	maxTasksText := "2, 4 or 8, by --profile"
	if !dropIn {
		maxTasksText = "as many as the fleet has slots"
		token = "coordinator-token" // --token is that of the Muster server
	}
	list = append(list, app.Option{Name: token, Env: "DT_TOKEN", Usage: "authenticate with this `JWT` instead of an API key", Group: group}.SecretVars(&o.token, "the JWT")...)
	list = append(list,
		app.Option{Name: "security-config", Usage: "sign messages with the secret in this `FILE`: the coordinator's security_config.json, or a file with the secret as its only line", Group: group}.StringVar(&o.secret),
		app.Option{Name: "db-path", Env: "DT_DB_PATH", Usage: "write results to this `FILE`, a SQLite database that duckdb can open", Group: group}.StringVar(&c.ResultsFile),
		app.Option{Name: "tags", Usage: "join with these `TAGS`, comma-separated", Group: group}.ListVar(&c.Tags),
		app.Option{Name: "heartbeat-interval", Usage: "send a heartbeat every so many `SECONDS`", Group: group}.FloatVar(&o.heartbeat, 86400),
		app.Option{Name: "health-check-interval", Usage: "check the health of workers every so many `SECONDS`", Group: group}.FloatVar(&o.health, 86400),
		app.Option{Name: "reconnect-attempts", Usage: "exit after this `NUMBER` of attempts if no coordinator has ever accepted this worker", Group: group}.IntVar(&c.ReconnectAttempts, 1, 1e6),
		app.Option{Name: "reconnect-interval", Usage: "wait this many `SECONDS` before the next attempt, then twice as long each time, up to a minute", Group: group}.FloatVar(&o.interval, 86400),
		app.Option{Name: "high-availability", Usage: "switch to another coordinator when one fails, never give up, and report health twice as often", Group: group}.BoolVar(&c.HighAvailability),
		app.Option{Name: "coordinator-registry", Usage: "read more coordinators from this `FILE`; it is created if missing", Group: group}.StringVar(&c.Registry),
		app.Option{Name: "max-concurrent-tasks", Usage: "run at most this `NUMBER` of tasks at once (default: " + maxTasksText + ")", Group: group}.IntVar(&c.MaxTasks, 1, 1000),
		app.Option{Name: "task-timeout", Usage: "stop a task after this many `SECONDS` (default: none)", Group: group}.FloatVar(&o.timeout, 1e8),
		app.Option{Name: "tests", Usage: "send the files of this `FOLDER` along with tasks that run a test in it (default with muster worker dtf: the current folder)", Group: group}.StringVar(&c.TestsDir),
		app.Option{Name: "recover", Usage: "with --reset-state: keep the tasks that are not reported yet", Group: group}.BoolVar(&o.recover),
		app.Option{Name: "reset-state", Usage: "forget the worker's id, token and tasks of previous runs", Group: group}.BoolVar(&o.reset),
		app.Option{Name: "log-dir", Usage: "also log to a file in this `FOLDER`", Group: group}.StringVar(&o.logDir),
		app.Option{Name: "verbose", Usage: "log at debug level", Group: group}.BoolVar(&o.verbose),
	)
	if dropIn {
		list = append(list, o.machineFlags("DTF, this machine")...)
	}
	return list
}

// machineFlags are the options of the machine: with muster bridge it is the fleet that decides.
func (o *dtfOptions) machineFlags(group string) []cli.Flag {
	return []cli.Flag{
		app.Option{Name: "profile", Usage: "run as many tasks at once as suits a `PROFILE`: benchmark (2), test (4) or light (8)", Group: group}.EnumVar(&o.profile, "benchmark", "test", "light"),
		app.Option{Name: "max-cpu-percent", Usage: "take no new tasks while more than this `PERCENT` of the cores is busy", Group: group}.FloatVar(&o.cpu, 100),
		app.Option{Name: "max-memory-percent", Usage: "take no new tasks while more than this `PERCENT` of the memory is in use", Group: group}.FloatVar(&o.memory, 100),
		app.Option{Name: "max-gpu-percent", Usage: "take no new tasks while the GPUs compute more than this `PERCENT` of the time", Group: group}.FloatVar(&o.gpu, 100),
		app.Option{Name: "memory-buffer", Usage: "keep this `SHARE` of the memory free, such as 0.2", Group: group}.FloatVar(&o.buffer, 0.99),
		app.Option{Name: "enable-swap", Usage: "let tasks use the machine's swap beyond their memory", Group: group}.BoolVar(&o.ai.EnableSwap),
		app.Option{Name: "cache-models", Usage: "keep models loaded between tasks", Group: group}.BoolVar(&o.ai.CacheModels),
		app.Option{Name: "cuda-streams", Usage: "compute this `NUMBER` of batches at once on a GPU", Group: group}.IntVar(&o.ai.CUDAStreams, 1, 1<<10),
		app.Option{Name: "optimize-for", Usage: "optimize for a `GOAL`: throughput or latency", Group: group}.EnumVar(&o.ai.OptimizeFor, workerd.OptimizeThroughput, workerd.OptimizeLatency),
		app.Option{Name: "mixed-precision", Usage: "compute in bf16 or fp16 unless a task says otherwise", Group: group}.BoolVar(&o.ai.MixedPrecision),
	}
}

// Notes has a line where a given option means something else here.
func (o *dtfOptions) Notes() []string {
	var notes []string
	if o.recover && !o.reset {
		notes = append(notes, "--recover: tasks are always recovered after a restart: it changes nothing without --reset-state")
	}
	if strings.HasSuffix(o.cfg.ResultsFile, ".duckdb") {
		notes = append(notes, "--db-path: the file is a SQLite database. Open it with: duckdb "+o.cfg.ResultsFile)
	}
	return notes
}

// WorkerName implements Named: several workers run on one machine if each has a name or an id.
func (o *dtfOptions) WorkerName() string { return cmp.Or(o.cfg.WorkerID, o.cfg.Name, o.hostname) }

// slots is how many tasks run at once.
func (o *dtfOptions) slots() int {
	return cmp.Or(o.cfg.MaxTasks, map[string]int{"benchmark": 2, "test": 4, "light": 8}[o.profile])
}

// ConfigureWorker implements Adapter.
func (o *dtfOptions) ConfigureWorker(w *workerd.Config) error {
	if err := o.readSecrets(); err != nil { // before tasks could read them in the environment
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
			return muster.Errorf(muster.Invalid, "--max-%s-percent: write a percentage over 0 and up to 100", limit.name)
		}
		*limit.to = &limit.percent
	}
	w.HostPolicy.MemoryBuffer = &o.buffer
	return nil
}

// readSecrets takes the key and the token out of arguments, files and the environment.
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

// Run implements Adapter.
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

// projectDir is the current folder, if it is one of a project: "" for the user's own and for the root, which are no folders to send along.
func projectDir() string {
	dir, err := os.Getwd()
	home, _ := os.UserHomeDir() // "" where there is none
	if err != nil || dir == filepath.Clean(home) || dir == filepath.Dir(dir) {
		return ""
	}
	return dir
}

// resetDTF forgets who the worker was, and its tasks unless they are to be reported.
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

// logger is that of env, with what --verbose and --log-dir ask for.
func (o *dtfOptions) logger(ctx context.Context, deps Deps) (*slog.Logger, func(), error) {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	handlers := []slog.Handler{deps.Log.Handler()}
	if o.verbose && !deps.Log.Enabled(ctx, slog.LevelDebug) {
		handlers[0] = slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})
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
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640) //nolint:gosec // the operator says where, and a group may read it
	if err != nil {
		return nil, nil, muster.Errorf(muster.Invalid, "--log-dir: %w", err)
	}
	handlers = append(handlers, slog.NewTextHandler(io.Writer(f), &slog.HandlerOptions{Level: level}))
	return slog.New(slog.NewMultiHandler(handlers...)), func() { _ = f.Close() }, nil
}
