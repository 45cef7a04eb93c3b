package bridge

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/workerd"
)

// parseDTF reads arguments as the command does.
func parseDTF(t *testing.T, dropIn bool, args ...string) *dtfOptions {
	t.Helper()
	o, ok := newDTF().(*dtfOptions)
	if !ok {
		t.Fatal("it is another type")
	}
	c := &cli.Command{Name: "dtf", Flags: o.Flags(dropIn), Action: func(context.Context, *cli.Command) error { return nil }}
	if err := c.Run(t.Context(), append([]string{"dtf"}, args...)); err != nil {
		t.Fatal(err)
	}
	return o
}

// Every option of the guide, and of DTF's programs, has its effect.
func TestDTFOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("a.b.c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := parseDTF(t, true, strings.Fields(`--coordinator http://a:8080,http://b:8080 --name gpu-worker-01 --worker-id w1 --api-key GPU_KEY --token-file `+file+`
		--db-path results.duckdb --tags gpu,cuda,transformers --profile benchmark --max-concurrent-tasks 3 --task-timeout 3600 --max-cpu-percent 80 --max-memory-percent 75
		--max-gpu-percent 90 --memory-buffer 0.2 --enable-swap --cache-models --cuda-streams 4 --optimize-for throughput --mixed-precision --recover --high-availability
		--reconnect-attempts 20 --reconnect-interval 15 --coordinator-registry registry.json --health-check-interval 5 --heartbeat-interval 2 --log-dir logs --verbose`)...)
	var w workerd.Config
	if err := o.ConfigureWorker(&w); err != nil {
		t.Fatal(err)
	}
	if w.Name != "gpu-worker-01" || !slices.Equal(w.Tags, []string{"gpu", "cuda", "transformers"}) || w.MaxTasks != 3 || w.Slots != 3 || *w.HostPolicy.MaxCPU != 80 || *w.HostPolicy.MaxMemory != 75 || *w.HostPolicy.MaxGPU != 90 ||
		*w.HostPolicy.MemoryBuffer != 0.2 || w.HostPolicy.Profile != "benchmark" || !w.AI.EnableSwap || !w.AI.CacheModels || w.AI.CUDAStreams != 4 || w.AI.OptimizeFor != "throughput" || !w.AI.MixedPrecision {
		t.Errorf("the machine: %+v", w)
	}
	if c := o.cfg; c.WorkerID != "w1" || c.APIKey != "GPU_KEY" || c.Token != "a.b.c" || c.ResultsFile != "results.duckdb" || c.ReconnectAttempts != 20 || !c.HighAvailability || c.Registry != "registry.json" {
		t.Errorf("the bridge: %+v", c)
	}
	if o.heartbeat != 2 || o.interval != 15 || o.health != 5 || o.timeout != 3600 || o.logDir != "logs" || !o.verbose {
		t.Errorf("%+v", o)
	}
	if notes := strings.Join(o.Notes(), "\n"); !strings.Contains(notes, "--recover") || !strings.Contains(notes, "duckdb results.duckdb") {
		t.Errorf("the notes: %s", notes)
	}
	for profile, want := range map[string]int{"benchmark": 2, "test": 4, "light": 8} {
		if got := parseDTF(t, true, "--profile", profile).slots(); got != want {
			t.Errorf("%s runs %d at once", profile, got)
		}
	}
}

func TestDTFVariables(t *testing.T) {
	t.Setenv("DT_COORDINATOR_URL", "http://coordinator:8080")
	t.Setenv("DT_API_KEY", "your-api-key")
	t.Setenv("DT_WORKER_NAME", "name")
	t.Setenv("DT_DB_PATH", "results.db")
	o := parseDTF(t, true)
	if err := o.readSecrets(); err != nil {
		t.Fatal(err)
	}
	if o.coordinator != "http://coordinator:8080" || o.cfg.APIKey != "your-api-key" || o.cfg.Name != "name" || o.cfg.ResultsFile != "results.db" {
		t.Errorf("%+v", o)
	}
	if os.Getenv("DT_API_KEY") != "" {
		t.Error("tasks could read the key")
	}
	if o := parseDTF(t, false, "--hostname", "other"); o.coordinator != "http://coordinator:8080" || o.hostname != "other" {
		t.Errorf("%+v", o)
	}
}

// The workers of a machine that have names of their own have folders of their own; no name is a path.
func TestDTFFolders(t *testing.T) {
	dtf := system{name: "dtf"}
	for args, want := range map[string]string{
		"":                                 "worker-dtf",
		"--name cpu-worker-01":             "worker-dtf-cpu-worker-01",
		"--hostname gpu":                   "worker-dtf-gpu",
		"--worker-id w1 --name gpu-worker": "worker-dtf-w1",
	} {
		if got := dataSubdir(parseDTF(t, true, strings.Fields(args)...), dtf); got != want {
			t.Errorf("%q: %s, not %s", args, got, want)
		}
	}
	seen := map[string]bool{}
	for _, name := range []string{"../x", "a/b", `a\b`, "..", ".hidden", "/root", strings.Repeat("x", 300)} {
		got := dataSubdir(parseDTF(t, true, "--name", name), dtf)
		if strings.ContainsAny(got, `/\.`) || len(got) > 30 || seen[got] {
			t.Errorf("%q has the folder %s", name, got)
		}
		seen[got] = true
	}
	if got := dataSubdir(newQubix(), system{name: "qubix"}); got != "worker-qubix" {
		t.Errorf("another system's is %s", got)
	}
}

func TestDTFReset(t *testing.T) {
	for keep, want := range map[bool]string{true: "jobs logs offers", false: "logs"} {
		dir := t.TempDir()
		for _, name := range []string{"jobs", "offers", "logs"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "worker.json"), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := resetDTF(dir, keep); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(dir)
		var names []string
		for _, e := range left {
			names = append(names, e.Name())
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("with recovery %v: %s is left, %v", keep, got, err)
		}
	}
}

func TestDTFLogFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "worker.log"), make([]byte, maxLogFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &dtfOptions{logDir: dir}
	log, done, err := o.logger(t.Context(), Deps{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("a line")
	done()
	if raw, err := os.ReadFile(filepath.Join(dir, "worker.log")); err != nil || !strings.Contains(string(raw), "a line") || len(raw) > 1000 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "worker.log.1")); err != nil {
		t.Error(err)
	}
}
