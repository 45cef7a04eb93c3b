package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

const (
	foreignWorkers = 200
	idleFor        = 30 * time.Second
)

// fakeWorkers plays workers of one system as they behave on the wire: their requests, and how often.
type fakeWorkers struct {
	base          string // of the gateway
	key           string // a join key
	redis         string
	http          *http.Client
	workAvailable chan struct{} // closed when there is work: pauses between looks for it are short from then on
	done          atomic.Int64  // tasks
}

// waitForPoll waits until the worker looks for work again: usual, while there is none.
func (p *fakeWorkers) waitForPoll(ctx context.Context, interval time.Duration) error {
	workAvailable, wait := p.workAvailable, interval
	select {
	case <-workAvailable:
		workAvailable, wait = nil, 100*time.Millisecond
	default:
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-workAvailable:
	case <-t.C:
	}
	return nil
}

// call makes a request of the gateway and reads its JSON answer into out, unless that is nil.
func (p *fakeWorkers) call(ctx context.Context, method, path string, in, out any) error {
	return p.send(ctx, method, p.base+path, nil, in, out)
}

// postResult posts a result to the URL of a task.
func (p *fakeWorkers) postResult(ctx context.Context, url string, header map[string]string, in any) error {
	return p.send(ctx, http.MethodPost, url, header, in, nil)
}

func (p *fakeWorkers) send(ctx context.Context, method, url string, header map[string]string, in, out any) error {
	body := []byte(nil)
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %d %.300s", method, url, resp.StatusCode, answer)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(answer, out)
	}
	return err
}

// BenchmarkGateways has 200 scripted workers on the gateway of each system: what they cost the server while they are idle, and
// how many tasks a second they run. They do no work for a task.
func BenchmarkGateways(b *testing.B) {
	for _, system := range []struct {
		name, options string
		tasks         int
		spec          func(n int) []*muster.Spec
		work          func(p *fakeWorkers, ctx context.Context, id string) error
	}{
		{"qubix", "", 4000, scriptSpecs, (*fakeWorkers).qubix},
		{"trainforge", "", 2000, func(n int) []*muster.Spec { return []*muster.Spec{arraySpec(muster.KindProcess, int64(n), "true")} }, (*fakeWorkers).trainforge},
		{"dtf", "", 4000, func(n int) []*muster.Spec { return inputSpecs("hash", n, `{"data":"muster"}`) }, (*fakeWorkers).dtf},
		{"mloc", "elastic=false", 2000, func(n int) []*muster.Spec { return inputSpecs("echo", n, `{"message":"hello"}`) }, (*fakeWorkers).mloc},
	} {
		b.Run(system.name, func(b *testing.B) {
			address, options := mustertest.ReservePort(b), system.options
			p := &fakeWorkers{
				base: "http://" + address, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: foreignWorkers}, Timeout: time.Minute}, workAvailable: make(chan struct{}),
			}
			if system.name == "mloc" {
				p.redis = startRedis(b)
				options += ",redis=" + p.redis
			}
			option := system.name + "=" + address
			if options != "" {
				option += "," + strings.TrimPrefix(options, ",")
			}
			c := mustertest.NewWith(b, b.TempDir(), mustertest.Options{Heartbeat: 5 * time.Second, Flags: []string{"--dialect", option}})
			p.key = mustertest.JoinToken
			for b.Loop() {
				p.measure(b, c, system.name, system.tasks, system.spec(system.tasks), func(ctx context.Context, id string) error { return system.work(p, ctx, id) })
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// measure plays the workers until they have run the tasks of specs.
func (p *fakeWorkers) measure(b *testing.B, c *mustertest.Cluster, name string, tasks int, specs []*muster.Spec, work func(context.Context, string) error) {
	b.Helper()
	time.Sleep(2 * time.Second) // until it has started for good
	empty := residentMB(b, c.Server.PID())
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	var broken atomic.Pointer[error] // the first one
	defer wg.Wait()
	defer cancel()
	for i := range foreignWorkers {
		wg.Go(func() {
			if err := work(ctx, name+"-"+strconv.Itoa(i)); err != nil && ctx.Err() == nil {
				b.Errorf("worker %d: %v", i, err) // its task is lost
				broken.CompareAndSwap(nil, &err)
			}
		})
	}
	c.Await("all workers are there", 3*time.Minute, func() error {
		if err := broken.Load(); err != nil {
			b.Fatal(*err)
		}
		ws, err := c.Client.Workers(ctx)
		active := 0
		for i := range ws {
			if ws[i].State == muster.WorkerActive && ws[i].Constrained == "" {
				active++
			}
		}
		if err == nil && active < foreignWorkers {
			err = fmt.Errorf("%d are", active)
		}
		return err
	})
	time.Sleep(5 * time.Second)
	before := cpuTime(b, c.Server.PID())
	time.Sleep(idleFor)
	idle := cpuTime(b, c.Server.PID()) - before
	b.ReportMetric(100*idle.Seconds()/idleFor.Seconds()/foreignWorkers, "idle-%core/worker")
	b.ReportMetric(empty, "rss-MB-empty")
	b.ReportMetric(residentMB(b, c.Server.PID()), "rss-MB-200-idle")

	before = cpuTime(b, c.Server.PID())
	began := time.Now()
	close(p.workAvailable)
	jobs := make([]muster.JobID, len(specs))
	for i, s := range specs {
		jobs[i] = c.Submit(s).ID
	}
	for _, id := range jobs {
		if job := c.Wait(id, 8*time.Minute); job.State != muster.JobSucceeded {
			b.Fatalf("the job ended as %s: %v", job.State, job.Counts)
		}
	}
	elapsed := time.Since(began)
	b.ReportMetric(float64(tasks)/elapsed.Seconds(), "tasks/s")
	b.ReportMetric(milliseconds(cpuTime(b, c.Server.PID())-before)/float64(tasks), "server-cpu-ms/task")
	b.ReportMetric(residentMB(b, c.Server.PID()), "rss-MB-after")
	c.Await("the workers' last requests are answered", time.Minute, func() error {
		if n := p.done.Load(); n < int64(tasks) {
			return fmt.Errorf("%d tasks were run", n)
		}
		return nil
	})
}

// scriptSpecs are jobs of n short Python scripts, one a stage: QUBIX's workers do not know elements.
func scriptSpecs(n int) []*muster.Spec {
	var specs []*muster.Spec
	for n > 0 {
		s := &muster.Spec{Name: "scripts"}
		for range min(n, muster.MaxStages) {
			s.Tasks = append(s.Tasks, muster.TaskSpec{
				Name: "s" + strconv.Itoa(n), Kind: muster.KindScript, Script: &muster.Script{Text: "print(1)\n", Interpreter: []string{"python3"}},
			})
			n--
		}
		specs = append(specs, s)
	}
	return specs
}

// inputSpecs is a job of n tasks of one kind with the same input.
func inputSpecs(kind string, n int, input string) []*muster.Spec {
	s := arraySpec(kind, int64(n))
	s.Tasks[0].Input = json.RawMessage(input)
	return []*muster.Spec{s}
}

// qubix is QUBIX's enhanced worker: a heartbeat every 30 seconds, a look for jobs every 5.
func (p *fakeWorkers) qubix(ctx context.Context, id string) error {
	err := p.call(ctx, "POST", "/api/providers/register", map[string]any{
		"worker_id": id, "name": id, "address": "QUBIC_" + id, "location": "Local Network", "computePower": 20.0, "pricePerHour": 5.0, "isActive": true,
		"specs": map[string]any{
			"worker_id": id, "hostname": id, "os": "Linux", "cpu_model": "x", "cpu_cores": 2, "ram_total_gb": 8.0, "gpu_available": false, "storage_free_gb": 70.0,
		},
	}, nil)
	if err != nil {
		return err
	}
	type job struct {
		ID string `json:"id"`
	}
	for next := time.Now(); ; {
		if !time.Now().Before(next) {
			next = time.Now().Add(30 * time.Second)
			err := p.call(ctx, "POST", "/api/providers/"+id+"/heartbeat", map[string]any{
				"workerId": id, "status": "online", "currentJob": nil,
				"usage": map[string]any{"cpuPercent": 1.5, "ramPercent": 3.0, "timestamp": time.Now().Format("2006-01-02T15:04:05.000000")},
			}, nil)
			if err != nil {
				return err
			}
		}
		var jobs []job
		if err := p.call(ctx, "GET", "/api/jobs/pending/"+id, nil, &jobs); err != nil {
			return err
		}
		if len(jobs) == 0 {
			if err := p.waitForPoll(ctx, 5*time.Second); err != nil {
				return err
			}
			continue
		}
		now := time.Now().UTC().Format("2006-01-02T15:04:05.000000")
		err := p.call(ctx, "POST", "/api/jobs/"+jobs[0].ID+"/progress", map[string]any{
			"workerId": id, "progress": 10, "currentOperation": "Running", "metrics": map[string]any{}, "timestamp": now,
		}, nil)
		if err == nil {
			err = p.call(ctx, "POST", "/api/jobs/"+jobs[0].ID+"/complete", map[string]any{
				"workerId": id, "status": "completed", "error": nil, "metrics": map[string]any{"processingTimeSeconds": 0.01}, "timestamp": now,
				"result": map[string]any{"status": "success", "exitCode": 0, "stdout": []string{"1"}, "stderr": []string{}},
			}, nil)
		}
		if err != nil {
			return err
		}
		p.done.Add(1)
	}
}

// trainforge is TrainForge's external worker: a heartbeat every 25 seconds, a look for jobs every 5.
func (p *fakeWorkers) trainforge(ctx context.Context, id string) error {
	err := p.call(ctx, "POST", "/api/workers/register", map[string]any{
		"worker_id": id, "status": "idle", "worker_type": "external_colab", "location": "google_colab", "gpu_name": "CPU", "gpu_memory_gb": 0.0,
		"capabilities": map[string]any{"gpu_count": 0, "gpu_info": map[string]any{"available": false}, "max_memory_gb": 8.0},
	}, nil)
	if err != nil {
		return err
	}
	type job struct {
		ID string `json:"job_id"`
	}
	for next := time.Now(); ; {
		if !time.Now().Before(next) {
			next = time.Now().Add(25 * time.Second)
			if err := p.call(ctx, "POST", "/api/workers/"+id+"/heartbeat", map[string]any{"timestamp": time.Now().Unix()}, nil); err != nil {
				return err
			}
		}
		var jobs []job
		if err := p.call(ctx, "GET", "/api/jobs/pending", nil, &jobs); err != nil {
			return err
		}
		taken := false
		if len(jobs) > 0 {
			var claimed struct {
				JobID string `json:"job_id"`
			}
			if err := p.call(ctx, "POST", "/api/jobs/"+jobs[0].ID+"/claim", map[string]any{"worker_id": id}, &claimed); err == nil {
				taken = true
				if err := p.trainforgeJob(ctx, jobs[0].ID); err != nil {
					return err
				}
			}
		}
		if !taken {
			if err := p.waitForPoll(ctx, 5*time.Second); err != nil {
				return err
			}
		}
	}
}

func (p *fakeWorkers) trainforgeJob(ctx context.Context, job string) error {
	at := "/api/jobs/" + job
	if err := p.call(ctx, "PUT", at+"/status", map[string]any{"status": "running", "message": "Starting"}, nil); err != nil {
		return err
	}
	if err := p.fetch(ctx, at+"/files"); err != nil {
		return err
	}
	lines := []map[string]any{
		{"message": `::trainforge {"alive": true}`, "timestamp": time.Now().Unix()},
		{"message": `::trainforge {"end": true, "exit_code": 0, "stopped": "", "wall_seconds": 0.01, "result": null, "missing": []}`, "timestamp": time.Now().Unix()},
	}
	if err := p.call(ctx, "POST", at+"/logs/batch", map[string]any{"logs": lines}, nil); err != nil {
		return err
	}
	if err := p.call(ctx, "PUT", at+"/status", map[string]any{"status": "completed", "message": "Done"}, nil); err != nil {
		return err
	}
	p.done.Add(1)
	return nil
}

// fetch reads a file to its end.
func (p *fakeWorkers) fetch(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %d", path, resp.StatusCode)
	}
	return nil
}

// BenchmarkBridge measures the memory of a machine that runs jobs of a QUBIX backend, compared with that of a worker without a bridge, each
// with its own server and after one task: what the bridge adds in one process (muster worker qubix compared with muster up) and as a separate
// process (muster bridge qubix).
func BenchmarkBridge(b *testing.B) {
	for b.Loop() {
		plain := mustertest.NewWith(b, b.TempDir(), mustertest.Options{Up: true})
		runJob(b, plain, mustertest.ShellSpec("warm", "true"))

		address := mustertest.ReservePort(b)
		backend := "http://" + address
		far := mustertest.NewWith(b, b.TempDir(), mustertest.Options{Flags: []string{"--dialect", "qubix=" + address}})
		one := startMuster(b, "drop-in", []string{"MUSTER_DATA=" + b.TempDir()}, "worker", "qubix", "--backend", backend, "--name", "machine")
		runJob(b, far, scriptSpecs(1)[0])

		near := mustertest.New(b, b.TempDir())
		worker := near.StartWorker("w1", b.TempDir())
		other := mustertest.ReservePort(b)
		backed := mustertest.NewWith(b, b.TempDir(), mustertest.Options{Flags: []string{"--dialect", "qubix=" + other}})
		bridge := startMuster(b, "bridge", []string{"MUSTER_TOKEN=" + mustertest.AdminToken}, "bridge", "qubix",
			"--server", "http://"+near.Addr, "--data", b.TempDir(), "--backend", "http://"+other)
		runJob(b, backed, scriptSpecs(1)[0])

		time.Sleep(20 * time.Second) // until what the tasks needed is given back
		up, alone := anonymousMB(b, plain.Server.PID()), anonymousMB(b, one)
		b.ReportMetric(up, "up-anon-MB")
		b.ReportMetric(alone, "worker-qubix-anon-MB")
		b.ReportMetric(alone-up, "bridge-adds-MB")
		b.ReportMetric(residentMB(b, plain.Server.PID()), "up-rss-MB")
		b.ReportMetric(residentMB(b, one), "worker-qubix-rss-MB")
		b.ReportMetric(anonymousMB(b, worker.PID()), "worker-anon-MB")
		b.ReportMetric(residentMB(b, worker.PID()), "worker-rss-MB")
		b.ReportMetric(residentMB(b, bridge), "bridge-rss-MB")
	}
	b.ReportMetric(0, "ns/op")
}

// anonymousMB returns the memory in MB that a process has for itself, without the pages of its program.
func anonymousMB(b *testing.B, pid int) float64 {
	b.Helper()
	return procField(b, pid, "status", "RssAnon:") / 1024
}

// startMuster starts the program and returns its process id.
func startMuster(b *testing.B, name string, env []string, args ...string) int {
	b.Helper()
	cmd := exec.Command(mustertest.Program(b), args...)
	log := filepath.Join(b.TempDir(), name+".log")
	f, err := os.Create(log)
	if err != nil {
		b.Fatal(err)
	}
	cmd.Env = append(append(os.Environ(), "MUSTER_CONFIG="+filepath.Join(b.TempDir(), "context.json")), env...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = f.Close()
		if text, err := os.ReadFile(log); b.Failed() && err == nil {
			b.Logf("log of %s:\n%.4000s", name, text)
		}
	})
	return cmd.Process.Pid
}
