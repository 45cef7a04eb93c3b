package bridge

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/dialect/mloc"
	"github.com/muster-dev/muster/internal/dialect/mloc/mlocbridge"
	"github.com/muster-dev/muster/internal/workerd"
)

// mlocOptions are the environment variables of MLOC's workers. muster bridge mloc has options for them.
type mlocOptions struct {
	mlocbridge.Config

	dropIn           bool
	heartbeatSeconds float64 // HEARTBEAT_INTERVAL_SEC
	getenv           func(string) string
	lookupEnv        func(string) (string, bool)
}

func newMLOC() Adapter {
	return &mlocOptions{Config: mlocbridge.Config{Topic: mloc.DefaultTopic, Results: "results_workers", Cost: 1}, heartbeatSeconds: 30, getenv: os.Getenv, lookupEnv: os.LookupEnv}
}

func (o *mlocOptions) Flags(dropIn bool) []cli.Flag {
	if o.dropIn = dropIn; dropIn {
		return nil // MLOC's workers have no options
	}
	const group = "MLOC"
	return []cli.Flag{
		app.Option{Name: "redis", Value: "url", Usage: "Redis database of the host (default: " + mloc.DefaultRedis + ")", Env: "REDIS_URL", Group: group}.StringVar(&o.Redis),
		app.Option{Name: "results", Value: "path", Usage: "Directory for files of tasks", Env: "RESULTS_DIR", Group: group}.StringVar(&o.Results),
		app.Option{Name: "topic", Value: "channel", Usage: "Redis channel of tasks", Env: "TASK_TOPIC", Group: group}.StringVar(&o.Topic),
		app.Option{Name: "heartbeat", Value: "seconds", Usage: "Heartbeat interval", Env: "HEARTBEAT_INTERVAL_SEC", Group: group}.FloatVar(&o.heartbeatSeconds, 3600),
		app.Option{Name: "worker-id", Value: "id", Usage: "Id of the worker (default: a new one, kept for later starts)", Env: "WORKER_ID", Group: group}.StringVar(&o.WorkerID),
		app.Option{Name: "tags", Usage: "Tags of the worker", Env: "WORKER_TAGS", Group: group}.ListVar(&o.Tags),
		app.Option{Name: "base-url", Value: "url", Usage: "REST API of the host, such as http://127.0.0.1:8000", Env: "ORCHESTRATOR_BASE_URL", Group: group}.StringVar(&o.BaseURL),
		app.Option{Name: "cost", Usage: "Price per hour", Env: "WORKER_COST_PER_HOUR", Group: group}.FloatVar(&o.Cost, 1e9),
		app.Option{Name: "bandwidth", Value: "bytes", Usage: "Maximum bandwidth for results, per second (default: unlimited)", Env: "WORKER_NETWORK_BANDWIDTH_BYTES_PER_SEC", Group: group}.FloatVar(&o.Bandwidth, 1e15),
		app.Option{Name: "shared", Value: "path", Usage: "Let tasks of the host read and write this directory; may be repeated (default: only that of --results)", Group: group}.RepeatedVar(&o.Shared),
	}
}

// readEnv reads the variables, except those that are options of muster bridge mloc.
func (o *mlocOptions) readEnv() error {
	if o.dropIn {
		o.Redis, o.WorkerID, o.BaseURL = o.getenv("REDIS_URL"), o.getenv("WORKER_ID"), o.getenv("ORCHESTRATOR_BASE_URL")
		for name, dst := range map[string]*string{"RESULTS_DIR": &o.Results, "TASK_TOPIC": &o.Topic} {
			if v := o.getenv(name); v != "" {
				*dst = v
			}
		}
		for name, dst := range map[string]*float64{"HEARTBEAT_INTERVAL_SEC": &o.heartbeatSeconds, "WORKER_COST_PER_HOUR": &o.Cost, "WORKER_NETWORK_BANDWIDTH_BYTES_PER_SEC": &o.Bandwidth} {
			v := strings.TrimSpace(o.getenv(name))
			if v == "" {
				continue
			}
			f, err := strconv.ParseFloat(v, 64)
			if err != nil || !(f >= 0) || f > 1e15 {
				return muster.Errorf(muster.Invalid, "invalid value %q for %s: must be a non-negative number", v, name)
			}
			*dst = f
		}
		for t := range strings.SplitSeq(o.getenv("WORKER_TAGS"), ",") {
			if t = strings.TrimSpace(t); t != "" {
				o.Tags = append(o.Tags, t)
			}
		}
	}
	if host := o.getenv("REDIS_HOST"); o.Redis == "" && (host != "" || o.getenv("REDIS_PORT") != "" || o.getenv("REDIS_DB") != "") { // as the container's entrypoint does
		o.Redis = fmt.Sprintf("redis://%s:%s/%s", cmp.Or(host, "redis"), cmp.Or(o.getenv("REDIS_PORT"), "6379"), cmp.Or(o.getenv("REDIS_DB"), "0"))
	}
	o.Redis = cmp.Or(o.Redis, mloc.DefaultRedis)
	o.Heartbeat = time.Duration(max(o.heartbeatSeconds, 1) * float64(time.Second))
	o.Token, o.HFModel, o.VLLMModel = o.getenv("ORCHESTRATOR_TOKEN"), o.getenv("HF_MODEL"), o.getenv("VLLM_MODEL")
	switch strings.ToLower(o.getenv("MODEL_CLEANUP_AFTER_UPLOAD")) {
	case "1", "true", "yes", "on":
		o.Cleanup = true
	}
	return nil
}

func (o *mlocOptions) Notes() []string {
	var notes []string
	if o.getenv("REDIS_URL") == "" && o.getenv("REDIS_HOST") == "" && o.Redis == "" {
		notes = append(notes, "REDIS_URL is not set: using "+mloc.DefaultRedis)
	}
	for _, name := range []string{"MODEL_ARCHIVE_USE_PIGZ", "MODEL_ARCHIVE_COMPRESSION_LEVEL", "MODEL_ARCHIVE_PIGZ_THREADS", "MODEL_ARCHIVE_PIGZ_BIN", "MODEL_ARCHIVE_TAR_BIN"} {
		if o.getenv(name) != "" {
			notes = append(notes, name+" has no effect: tasks create their archives with gzip at level 1")
		}
	}
	if v, set := o.lookupEnv("CUDA_VISIBLE_DEVICES"); set {
		if o.dropIn {
			notes = append(notes, "CUDA_VISIBLE_DEVICES="+v+": only these GPUs are registered and assigned to tasks")
		} else {
			notes = append(notes, "CUDA_VISIBLE_DEVICES has no effect on a bridge: set it for the workers of the fleet")
		}
	}
	return notes
}

// LogLevel returns the level of LOG_LEVEL, which has Python's names, "" if it is not set.
func (o *mlocOptions) LogLevel() string {
	switch level := strings.ToLower(o.getenv("LOG_LEVEL")); level {
	case "warning":
		return "warn"
	case "critical", "fatal":
		return "error"
	case "debug", "info", "warn", "error":
		return level
	default:
		return ""
	}
}

func (o *mlocOptions) ConfigureWorker(w *workerd.Config) error {
	if err := o.readEnv(); err != nil {
		return err
	}
	w.Price = o.Cost
	w.AllowPrivate = true // the host and its files are in a private network
	return nil
}

func (o *mlocOptions) Run(ctx context.Context, deps Deps) error {
	opts := *o
	if !opts.dropIn {
		if err := opts.readEnv(); err != nil {
			return err
		}
	}
	cfg := opts.Config
	cfg.StopTasks, cfg.AllowAnyPath = opts.dropIn, opts.dropIn
	if deps.Worker != "" {
		cfg.WorkerID = strings.Trim(cfg.WorkerID+"-"+deps.ID, "-")
	}
	cfg.Core = deps.coreConfig()
	b, err := mlocbridge.New(cfg)
	if err != nil {
		return err
	}
	return b.Run(ctx, deps.AcceptCtx)
}

func (o *mlocOptions) EnvVars(dropIn bool) []app.HelpRow {
	rows := []app.HelpRow{
		{Name: "REDIS_HOST, REDIS_PORT, REDIS_DB", Usage: "Redis database, if one of these is set and REDIS_URL is not (default: redis, 6379 and 0)"},
		{Name: "ORCHESTRATOR_TOKEN", Usage: "Bearer token for requests to the host"},
		{Name: "HF_MODEL", Usage: "Default model of inference tasks"},
		{Name: "VLLM_MODEL", Usage: "Default model of inference tasks on a GPU"},
		{Name: "MODEL_CLEANUP_AFTER_UPLOAD", Usage: "Delete the files of a model after the upload to the host: true, 1, yes or on"},
	}
	if !dropIn {
		return rows
	}
	return append([]app.HelpRow{
		{Name: "REDIS_URL", Usage: "Redis database of the host (default: " + mloc.DefaultRedis + ")"},
		{Name: "RESULTS_DIR", Usage: "Directory for files of tasks (default: " + o.Results + ")"},
		{Name: "TASK_TOPIC", Usage: "Redis channel of tasks (default: " + o.Topic + ")"},
		{Name: "HEARTBEAT_INTERVAL_SEC", Usage: "Heartbeat interval in seconds (default: 30)"},
		{Name: "WORKER_ID", Usage: "Id of the worker (default: a new one, kept for later starts)"},
		{Name: "WORKER_TAGS", Usage: "Tags of the worker, comma-separated"},
		{Name: "WORKER_COST_PER_HOUR", Usage: "Price per hour (default: 1)"},
		{Name: "WORKER_NETWORK_BANDWIDTH_BYTES_PER_SEC", Usage: "Maximum bandwidth for results, in bytes per second (default: unlimited)"},
		{Name: "ORCHESTRATOR_BASE_URL", Usage: "REST API of the host, such as http://127.0.0.1:8000"},
		{Name: "CUDA_VISIBLE_DEVICES", Usage: "GPUs to use (default: all)"},
		{Name: "LOG_LEVEL", Usage: "Minimum log level: DEBUG, INFO, WARNING, ERROR or CRITICAL; MUSTER_LOG_LEVEL takes precedence"},
	}, rows...)
}
