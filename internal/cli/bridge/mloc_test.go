package bridge

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/workerd"
)

// newMLOCOptions reads variables as muster worker mloc does, or variables and arguments as muster bridge mloc does.
func newMLOCOptions(t *testing.T, dropIn bool, variables map[string]string, args ...string) (*mlocOptions, error) {
	t.Helper()
	o, ok := newMLOC().(*mlocOptions)
	if !ok {
		t.Fatal("it is another type")
	}
	o.lookupEnv = func(name string) (string, bool) { v, set := variables[name]; return v, set }
	o.getenv = func(name string) string { return variables[name] }
	for k, v := range variables {
		t.Setenv(k, v)
	}
	c := &cli.Command{Name: "mloc", Flags: o.Flags(dropIn), Action: func(context.Context, *cli.Command) error { return nil }}
	if err := c.Run(t.Context(), append([]string{"mloc"}, args...)); err != nil {
		t.Fatal(err)
	}
	return o, o.readEnv()
}

// Every variable of the guide, and of MLOC's programs, has its effect.
func TestMLOCVariables(t *testing.T) {
	all := map[string]string{
		"REDIS_URL": "redis://r:6380/2", "RESULTS_DIR": "/mnt/results", "TASK_TOPIC": "jobs", "HEARTBEAT_INTERVAL_SEC": "2.5", "WORKER_ID": "w1", "WORKER_TAGS": "gpu, a100,,", "LOG_LEVEL": "WARNING",
		"WORKER_COST_PER_HOUR": "2.5", "WORKER_NETWORK_BANDWIDTH_BYTES_PER_SEC": "1000", "ORCHESTRATOR_BASE_URL": "http://h:8000", "ORCHESTRATOR_TOKEN": "secret", "HF_MODEL": "hf", "VLLM_MODEL": "v",
		"MODEL_CLEANUP_AFTER_UPLOAD": "true", "MODEL_ARCHIVE_USE_PIGZ": "1", "CUDA_VISIBLE_DEVICES": "0",
	}
	o, err := newMLOCOptions(t, true, all)
	if err != nil {
		t.Fatal(err)
	}
	if o.Redis != "redis://r:6380/2" || o.Results != "/mnt/results" || o.Topic != "jobs" || o.Heartbeat != 2500*time.Millisecond || o.WorkerID != "w1" || !slices.Equal(o.Tags, []string{"gpu", "a100"}) ||
		o.Cost != 2.5 || o.Bandwidth != 1000 || o.BaseURL != "http://h:8000" || o.Token != "secret" || o.HFModel != "hf" || o.VLLMModel != "v" || !o.Cleanup || o.LogLevel() != "warn" {
		t.Errorf("%+v", o)
	}
	var w workerd.Config
	if err := o.ConfigureWorker(&w); err != nil || w.Price != 2.5 {
		t.Errorf("the machine's price is %g, %v", w.Price, err)
	}
	if notes := strings.Join(o.Notes(), "\n"); !strings.Contains(notes, "MODEL_ARCHIVE_USE_PIGZ has no effect") || !strings.Contains(notes, "CUDA_VISIBLE_DEVICES=0: only these GPUs") {
		t.Errorf("the notes: %s", notes)
	}
	var shown []string
	for _, row := range o.EnvVars(true) {
		shown = append(shown, strings.Split(row.Name, ", ")...)
	}
	for name := range all {
		if !slices.Contains(shown, name) && !strings.HasPrefix(name, "MODEL_ARCHIVE") {
			t.Errorf("the help does not have %s", name)
		}
	}
}

// Without variables the values are those of the guide.
func TestMLOCDefaults(t *testing.T) {
	o, err := newMLOCOptions(t, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o.Redis != "redis://localhost:6379/0" || o.Results != "results_workers" || o.Topic != "tasks" || o.Heartbeat != 30*time.Second || o.WorkerID != "" || len(o.Tags) != 0 || o.Cost != 1 || o.Bandwidth != 0 || o.BaseURL != "" {
		t.Errorf("%+v", o)
	}
	fresh, err := newMLOCOptions(t, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	fresh.Redis = ""
	if notes := fresh.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "REDIS_URL is not set") {
		t.Errorf("the notes: %v", notes)
	}
	if o, err := newMLOCOptions(t, true, map[string]string{"REDIS_PORT": "6380"}); err != nil || o.Redis != "redis://redis:6380/0" {
		t.Errorf("as in the container: %v, %v", o.Redis, err)
	}
}

// An invalid number ends the start, as with MLOC's worker.
func TestMLOCBadVariables(t *testing.T) {
	for _, name := range []string{"WORKER_COST_PER_HOUR", "WORKER_NETWORK_BANDWIDTH_BYTES_PER_SEC", "HEARTBEAT_INTERVAL_SEC"} {
		for _, bad := range []string{"-1", "cheap", "NaN"} {
			if _, err := newMLOCOptions(t, true, map[string]string{name: bad}); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), name) {
				t.Errorf("%s=%s: %v", name, bad, err)
			}
		}
	}
}

// muster bridge mloc has an option for each variable, and also reads the variables.
func TestMLOCBridgeOptions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mount")
	o, err := newMLOCOptions(t, false, map[string]string{"WORKER_TAGS": "a,b", "ORCHESTRATOR_TOKEN": "secret"}, strings.Fields(
		`--redis redis://r/1 --results out --topic jobs --heartbeat 5 --worker-id w1 --base-url http://h:8000 --cost 3 --bandwidth 10 --shared `+dir)...)
	if err != nil {
		t.Fatal(err)
	}
	if o.Redis != "redis://r/1" || o.Results != "out" || o.Topic != "jobs" || o.Heartbeat != 5*time.Second || o.WorkerID != "w1" || !slices.Equal(o.Tags, []string{"a", "b"}) || o.BaseURL != "http://h:8000" ||
		o.Cost != 3 || o.Bandwidth != 10 || o.Token != "secret" || !slices.Equal(o.Shared, []string{dir}) {
		t.Errorf("%+v", o)
	}
}
