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
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/dialect/dtf"
	"github.com/muster-dev/muster/internal/work"
)

// dtfOptions are those of DTF's workers, by the names, variables and defaults of their guide.
type dtfOptions struct {
	coordinator, hostname string
	cfg                   dtf.BridgeConfig
	key, token            frame.Secret
	secret                string // file
	heartbeat, health     float64
	interval, timeout     float64 // seconds
	profile               string
	cpu, memory, gpu      float64 // percent
	buffer                float64
	ai                    work.AI
	recover, reset        bool
	logDir                string
	verbose               bool
	dropIn                bool

	read sync.Mutex // of the secrets
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
		frame.Option{Name: "coordinator", Env: "DT_COORDINATOR_URL", Usage: "work for the coordinator at this `URL`; several with commas between them", Group: group}.Text(&o.coordinator),
		frame.Option{Name: "name", Env: "DT_WORKER_NAME", Usage: "register under this `name` (default: the host's)", Group: group}.Text(&c.Name),
		frame.Option{Name: "hostname", Usage: "register under this `name`, as with --name", Group: group}.Text(&o.hostname),
		frame.Option{Name: "worker-id", Usage: "be the worker with this `id` (default: the one of the last time, or a new UUID)", Group: group}.Text(&c.WorkerID),
	}
	list = append(list, frame.Option{Name: "api-key", Env: "DT_API_KEY", Usage: "authenticate with this `key`", Group: group}.Secret(&o.key, "the API key")...)
	token := "token"
	if !dropIn {
		token = "coordinator-token" // --token is that of the Muster server
	}
	list = append(list, frame.Option{Name: token, Env: "DT_TOKEN", Usage: "authenticate with this `JWT` in place of a key", Group: group}.Secret(&o.token, "the JWT")...)
	list = append(list,
		frame.Option{Name: "security-config", Usage: "sign messages with the secret_key of this `file`, the coordinator's security_config.json, or with the secret that is its one line", Group: group}.Text(&o.secret),
		frame.Option{Name: "db-path", Env: "DT_DB_PATH", Usage: "keep results in this `file`, a SQLite database, which duckdb opens, too", Group: group}.Text(&c.Results),
		frame.Option{Name: "tags", Usage: "register with these `tags`, with commas between them", Group: group}.List(&c.Tags),
		frame.Option{Name: "heartbeat-interval", Usage: "send a heartbeat every `seconds`", Group: group}.Decimal(&o.heartbeat, 86400),
		frame.Option{Name: "health-check-interval", Usage: "look at the health of workers every `seconds`", Group: group}.Decimal(&o.health, 86400),
		frame.Option{Name: "reconnect-attempts", Usage: "give up after this `number` of tries if no coordinator ever let this worker in", Group: group}.Number(&c.ReconnectAttempts, 1, 1e6),
		frame.Option{Name: "reconnect-interval", Usage: "try again after `seconds`, then after twice as many, up to a minute", Group: group}.Decimal(&o.interval, 86400),
		frame.Option{Name: "high-availability", Usage: "switch to another coordinator when one fails, never give up, and report health twice as often", Group: group}.On(&c.HighAvailability),
		frame.Option{Name: "coordinator-registry", Usage: "take more coordinators from this `file`, which is made if it is not there", Group: group}.Text(&c.Registry),
		frame.Option{Name: "max-concurrent-tasks", Usage: "run at most this `number` of tasks at once (default: by the profile 2, 4 or 8)", Group: group}.Number(&c.MaxTasks, 1, 1000),
		frame.Option{Name: "task-timeout", Usage: "end a task after `seconds`, whatever it says (default: none)", Group: group}.Decimal(&o.timeout, 1e8),
		frame.Option{Name: "tests", Usage: "bring the files of this `folder` along with tests that name one of them (default with muster worker: the current one)", Group: group}.Text(&c.Tests),
		frame.Option{Name: "recover", Usage: "with --reset-state: report what is open from the last time first", Group: group}.On(&o.recover),
		frame.Option{Name: "reset-state", Usage: "forget the worker's id, its token and its tasks", Group: group}.On(&o.reset),
		frame.Option{Name: "log-dir", Usage: "log to a file in this `folder`, too", Group: group}.Text(&o.logDir),
		frame.Option{Name: "verbose", Usage: "log more", Group: group}.On(&o.verbose),
	)
	if dropIn {
		list = append(list, o.machine("DTF, this machine")...)
	}
	return list
}

// machine are the options of the machine: with muster bridge it is the fleet that decides.
func (o *dtfOptions) machine(group string) []cli.Flag {
	return []cli.Flag{
		frame.Option{Name: "profile", Usage: "be set up for `what`: benchmark (2 tasks at once), test (4) or light (8)", Group: group}.Choice(&o.profile, "benchmark", "test", "light"),
		frame.Option{Name: "max-cpu-percent", Usage: "take nothing new while more than this `percentage` of the cores is busy", Group: group}.Decimal(&o.cpu, 100),
		frame.Option{Name: "max-memory-percent", Usage: "take nothing new while more than this `percentage` of the memory is in use", Group: group}.Decimal(&o.memory, 100),
		frame.Option{Name: "max-gpu-percent", Usage: "take nothing new while the GPUs compute more than this `percentage` of the time", Group: group}.Decimal(&o.gpu, 100),
		frame.Option{Name: "memory-buffer", Usage: "keep this `share` of the memory free", Group: group}.Decimal(&o.buffer, 0.99),
		frame.Option{Name: "enable-swap", Usage: "let tasks use the machine's swap beyond their memory", Group: group}.On(&o.ai.EnableSwap),
		frame.Option{Name: "cache-models", Usage: "keep models loaded between tasks", Group: group}.On(&o.ai.CacheModels),
		frame.Option{Name: "cuda-streams", Usage: "compute this `number` of batches at once on a GPU", Group: group}.Number(&o.ai.CUDAStreams, 1, 1<<10),
		frame.Option{Name: "optimize-for", Usage: "be good at `what`: throughput or latency", Group: group}.Choice(&o.ai.OptimizeFor, work.OptimizeThroughput, work.OptimizeLatency),
		frame.Option{Name: "mixed-precision", Usage: "compute in bf16 or fp16 where a task does not say otherwise", Group: group}.On(&o.ai.MixedPrecision),
	}
}

// Notes has a line where a given option means something else here.
func (o *dtfOptions) Notes() []string {
	var notes []string
	if o.recover && !o.reset {
		notes = append(notes, "--recover: tasks are always recovered after a restart: it changes nothing without --reset-state")
	}
	if strings.HasSuffix(o.cfg.Results, ".duckdb") {
		notes = append(notes, "--db-path: the file is a SQLite database. Open it with: duckdb "+o.cfg.Results)
	}
	return notes
}

// Worker implements Named: several workers run on one machine if each has a name or an id.
func (o *dtfOptions) Worker() string { return cmp.Or(o.cfg.WorkerID, o.cfg.Name, o.hostname) }

// slots is how many tasks run at once.
func (o *dtfOptions) slots() int {
	return cmp.Or(o.cfg.MaxTasks, map[string]int{"benchmark": 2, "test": 4, "light": 8}[o.profile])
}

// Machine implements Adapter.
func (o *dtfOptions) Machine(w *work.Config) error {
	if err := o.secrets(); err != nil { // before tasks could read them in the environment
		return err
	}
	w.Name, w.Tags, w.Slots = cmp.Or(o.cfg.Name, o.hostname), o.cfg.Tags, o.slots()
	w.MaxTasks = o.slots()
	w.AI = o.ai
	w.Share.Profile = o.profile
	for _, limit := range []struct {
		name    string
		percent float64
		to      **float64
	}{{"cpu", o.cpu, &w.Share.MaxCPU}, {"memory", o.memory, &w.Share.MaxMemory}, {"gpu", o.gpu, &w.Share.MaxGPU}} {
		if limit.percent <= 0 {
			return muster.Errorf(muster.Invalid, "--max-%s-percent: write a percentage over 0 and up to 100", limit.name)
		}
		*limit.to = &limit.percent
	}
	w.Share.MemoryBuffer = &o.buffer
	return nil
}

// secrets takes the key and the token out of arguments, files and the environment.
func (o *dtfOptions) secrets() error {
	key, err := o.key.Take()
	if err != nil {
		return err
	}
	token, err := o.token.Take()
	if err != nil {
		return err
	}
	o.cfg.APIKey, o.cfg.Token = cmp.Or(key, o.cfg.APIKey), cmp.Or(token, o.cfg.Token)
	return nil
}

// Run implements Adapter.
func (o *dtfOptions) Run(ctx context.Context, env Env) (err error) {
	o.read.Lock() // Run is called for several workers at once
	err = o.secrets()
	cfg := o.cfg
	o.read.Unlock()
	if err != nil {
		return err
	}
	for _, url := range strings.Split(o.coordinator, ",") {
		if url = strings.TrimSpace(url); url != "" {
			cfg.Coordinators = append(cfg.Coordinators, url)
		}
	}
	cfg.Name = cmp.Or(cfg.Name, o.hostname)
	if env.Worker != "" {
		cfg.Name, cfg.WorkerID = env.Worker, cmp.Or(cfg.WorkerID, "muster")+"-"+env.ID
	}
	if o.secret != "" {
		if cfg.Secret, err = dtf.ReadSecret(o.secret); err != nil {
			return err
		}
	}
	cfg.Heartbeat, cfg.HealthCheck, cfg.ReconnectInterval, cfg.TaskTimeout = seconds(o.heartbeat), seconds(o.health), seconds(o.interval), seconds(o.timeout)
	if cfg.Tests == "" && o.dropIn {
		cfg.Tests = here()
	}
	if o.dropIn {
		cfg.MaxTasks = o.slots()
	}
	if o.reset {
		if err := resetDTF(env.Dir, o.recover); err != nil {
			return err
		}
	}
	log, done, err := o.logger(env)
	if err != nil {
		return err
	}
	defer done()
	cfg.Dir, cfg.Version, cfg.Stop = env.Dir, frame.BuildVersion().Version, env.Taking.Done()
	env.Log = log
	cfg.Core = env.core()
	b, err := dtf.NewBridge(ctx, cfg)
	if err != nil {
		return err
	}
	return b.Run(ctx)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// here is the current folder, if it is one of a project: "" for the user's own and for the root, which are no folders to send along.
func here() string {
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
func (o *dtfOptions) logger(env Env) (*slog.Logger, func(), error) {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	handlers := []slog.Handler{env.Log.Handler()}
	if o.verbose && !env.Log.Enabled(context.Background(), slog.LevelDebug) {
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
