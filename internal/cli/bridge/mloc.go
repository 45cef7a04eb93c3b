package bridge

import (
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

// mlocOptions are those of MLOC's workers, which have variables only. muster bridge mloc has options of the same meaning.
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
		return nil // a worker of MLOC has no options
	}
	const group = "MLOC"
	return []cli.Flag{
		app.Option{Name: "redis", Usage: "the `URL` of the Redis database of the host (default: " + mloc.DefaultRedis + ")", Env: "REDIS_URL", Group: group}.StringVar(&o.Redis),
		app.Option{Name: "results", Usage: "keep the files of tasks in this `FOLDER`", Env: "RESULTS_DIR", Group: group}.StringVar(&o.Results),
		app.Option{Name: "topic", Usage: "receive tasks from this Redis `CHANNEL`", Env: "TASK_TOPIC", Group: group}.StringVar(&o.Topic),
		app.Option{Name: "heartbeat", Usage: "send a heartbeat every so many `SECONDS`", Env: "HEARTBEAT_INTERVAL_SEC", Group: group}.FloatVar(&o.heartbeatSeconds, 3600),
		app.Option{Name: "worker-id", Usage: "join with this `ID` (default: a new one, kept for later starts)", Env: "WORKER_ID", Group: group}.StringVar(&o.WorkerID),
		app.Option{Name: "tags", Usage: "join with these `TAGS`, comma-separated", Env: "WORKER_TAGS", Group: group}.ListVar(&o.Tags),
		app.Option{Name: "base-url", Usage: "the `URL` of the host's REST API, such as http://127.0.0.1:8000", Env: "ORCHESTRATOR_BASE_URL", Group: group}.StringVar(&o.BaseURL),
		app.Option{Name: "cost", Usage: "join with this `PRICE` per hour", Env: "WORKER_COST_PER_HOUR", Group: group}.FloatVar(&o.Cost, 1e9),
		app.Option{Name: "bandwidth", Usage: "send results at this many `BYTES` a second at most (default: no cap)", Env: "WORKER_NETWORK_BANDWIDTH_BYTES_PER_SEC", Group: group}.FloatVar(&o.Bandwidth, 1e15),
		app.Option{Name: "shared", Usage: "let tasks of the host read and write files in this `FOLDER` of this machine; may be repeated (default: only the folder of --results)", Group: group}.RepeatedVar(&o.Shared),
	}
}

// readEnv takes the variables, and says what is wrong with one. Those of muster bridge mloc that are options were read.
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
				return muster.Errorf(muster.Invalid, "%s is %q: write a number that is not negative", name, v)
			}
			*dst = f
		}
		for t := range strings.SplitSeq(o.getenv("WORKER_TAGS"), ",") {
			if t = strings.TrimSpace(t); t != "" {
				o.Tags = append(o.Tags, t)
			}
		}
	}
	if host := o.getenv("REDIS_HOST"); o.Redis == "" && (host != "" || o.getenv("REDIS_PORT") != "" || o.getenv("REDIS_DB") != "") { // as the container's entrypoint
		o.Redis = fmt.Sprintf("redis://%s:%s/%s", orDefault(host, "redis"), orDefault(o.getenv("REDIS_PORT"), "6379"), orDefault(o.getenv("REDIS_DB"), "0"))
	}
	o.Redis = orDefault(o.Redis, mloc.DefaultRedis)
	o.Heartbeat = time.Duration(max(o.heartbeatSeconds, 1) * float64(time.Second))
	o.Token, o.HFModel, o.VLLMModel = o.getenv("ORCHESTRATOR_TOKEN"), o.getenv("HF_MODEL"), o.getenv("VLLM_MODEL")
	switch strings.ToLower(o.getenv("MODEL_CLEANUP_AFTER_UPLOAD")) {
	case "1", "true", "yes", "on":
		o.Cleanup = true
	}
	return nil
}

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// Notes says what variables do here that have no equivalent.
func (o *mlocOptions) Notes() []string {
	var notes []string
	if o.getenv("REDIS_URL") == "" && o.getenv("REDIS_HOST") == "" && o.Redis == "" {
		notes = append(notes, "REDIS_URL is not set: using "+mloc.DefaultRedis)
	}
	for _, name := range []string{"MODEL_ARCHIVE_USE_PIGZ", "MODEL_ARCHIVE_COMPRESSION_LEVEL", "MODEL_ARCHIVE_PIGZ_THREADS", "MODEL_ARCHIVE_PIGZ_BIN", "MODEL_ARCHIVE_TAR_BIN"} {
		if o.getenv(name) != "" {
			notes = append(notes, name+" has no effect: the task itself packs its archive, with gzip at level 1, which suits weights")
		}
	}
	if v, set := o.lookupEnv("CUDA_VISIBLE_DEVICES"); set {
		if o.dropIn {
			notes = append(notes, "CUDA_VISIBLE_DEVICES="+v+": only these GPUs are registered and given to tasks; each task sees those that it was given")
		} else {
			notes = append(notes, "CUDA_VISIBLE_DEVICES has no effect on a bridge: set it where the fleet's workers start")
		}
	}
	return notes
}

// LogLevel is that of LOG_LEVEL, in Python's words; "" if it says none.
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

// ConfigureWorker gives the worker of this machine the price that the host knows.
func (o *mlocOptions) ConfigureWorker(w *workerd.Config) error {
	if err := o.readEnv(); err != nil {
		return err
	}
	w.Price = o.Cost
	w.AllowPrivate = true // the host, and what its tasks name, is in the owner's own network
	return nil
}

// Run is called after Machine in a drop-in, and at the same time for each worker of a fleet.
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
