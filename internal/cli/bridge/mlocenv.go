package bridge

import (
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// EnvVars implements Variables: a worker of MLOC has no options, and muster bridge mloc has options for some of its variables.
func (o *mlocOptions) EnvVars(dropIn bool) []app.HelpRow {
	rows := []app.HelpRow{
		{Name: "REDIS_HOST, REDIS_PORT, REDIS_DB", Usage: "the Redis database, where REDIS_URL is not set and one of these is (default: redis, 6379 and 0)"},
		{Name: "ORCHESTRATOR_TOKEN", Usage: "send this bearer token with requests to the host"},
		{Name: "HF_MODEL", Usage: "the model of inference tasks that name none"},
		{Name: "VLLM_MODEL", Usage: "the same, for tasks that run on a GPU"},
		{Name: "MODEL_CLEANUP_AFTER_UPLOAD", Usage: "true, 1, yes or on: delete the files of a model once the host has them"},
	}
	if !dropIn {
		return rows
	}
	return append([]app.HelpRow{
		{Name: "REDIS_URL", Usage: "the Redis database of the host (default: " + mloc.DefaultRedis + ")"},
		{Name: "RESULTS_DIR", Usage: "keep the files of tasks in this folder (default: " + o.Results + ")"},
		{Name: "TASK_TOPIC", Usage: "receive tasks from this Redis channel (default: " + o.Topic + ")"},
		{Name: "HEARTBEAT_INTERVAL_SEC", Usage: "send a heartbeat every so many seconds (default: 30)"},
		{Name: "WORKER_ID", Usage: "join with this id (default: a new one, kept for later starts)"},
		{Name: "WORKER_TAGS", Usage: "join with these tags, comma-separated"},
		{Name: "WORKER_COST_PER_HOUR", Usage: "join with this price per hour (default: 1)"},
		{Name: "WORKER_NETWORK_BANDWIDTH_BYTES_PER_SEC", Usage: "send results at this many bytes a second at most (default: no cap)"},
		{Name: "ORCHESTRATOR_BASE_URL", Usage: "the URL of the host's REST API, such as http://127.0.0.1:8000"},
		{Name: "CUDA_VISIBLE_DEVICES", Usage: "use only these GPUs (default: all)"},
		{Name: "LOG_LEVEL", Usage: "the same as MUSTER_LOG_LEVEL, which overrides it, with Python's names: DEBUG, INFO, WARNING, ERROR or CRITICAL"},
	}, rows...)
}
