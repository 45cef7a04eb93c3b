//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// bridgedSystem is a system over which one Muster serves another: the gateway of the first is the server of the bridge of the second.
type bridgedSystem struct {
	dialect string                                   // of the first server, with %s for its address
	args    func(t *testing.T, addr string) []string // of muster bridge
	spec    func() muster.TaskSpec                   // takes about ten seconds
	result  string                                   // a part of it
}

// slowProgram is a Python script that runs for ten seconds and reports its progress.
const slowProgram = `#!/usr/bin/env python3
import time
for i in range(10):
    print("step", i, flush=True)
    time.sleep(1)
`

func slowScriptSpec() muster.TaskSpec {
	return muster.TaskSpec{Kind: muster.KindScript, Script: &muster.Script{Text: slowProgram}}
}

func bridgedSystems() map[string]bridgedSystem {
	return map[string]bridgedSystem{
		"qubix": {
			dialect: "qubix=%s", spec: slowScriptSpec, result: `step 9`,
			args: func(_ *testing.T, addr string) []string { return []string{"--backend", "http://" + addr} },
		},
		"trainforge": {
			dialect: "trainforge=%s", spec: slowScriptSpec,
			args: func(_ *testing.T, addr string) []string { return []string{"--scheduler", "http://" + addr} },
		},
		"dtf": {
			dialect: "dtf=%s", result: `"passed":1`,
			spec: func() muster.TaskSpec {
				return muster.TaskSpec{Kind: "test", Input: json.RawMessage(`{"test_file": "test_slow.py"}`)}
			},
			args: func(t *testing.T, addr string) []string {
				t.Helper()
				tests := t.TempDir()
				if err := os.WriteFile(filepath.Join(tests, "test_slow.py"), []byte("import time\n\ndef test_slow():\n    time.sleep(10)\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				return []string{"--coordinator", "http://" + addr, "--api-key", mustertest.JoinToken, "--tests", tests}
			},
		},
	}
}

// TestBridgeToGateway runs a real task on a fleet that serves another Muster as a worker of a foreign system, and kills each of the four
// programs with -9 on the way: it ends once, and its end is reported once.
func TestBridgeToGateway(t *testing.T) {
	t.Parallel()
	for name, system := range bridgedSystems() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bridgeToGateway(t, name, system)
		})
	}
}

func bridgeToGateway(t *testing.T, name string, system bridgedSystem) {
	t.Helper()
	addr := mustertest.ReservePort(t)
	outer := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--dialect", fmt.Sprintf(system.dialect, addr)}})
	inner := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	worker := inner.StartWorker("w", dir)
	env := []string{"MUSTER_TOKEN=" + mustertest.AdminToken}
	args := append([]string{"bridge", name, "--server", "http://" + inner.Addr, "--data", t.TempDir()}, system.args(t, addr)...)
	bridge := mustertest.StartMuster(t, "bridge", env, args...)

	outer.Await("the bridge is a worker", time.Minute, func() error {
		workers, err := outer.Client.Workers(t.Context())
		if err == nil && (len(workers) != 1 || workers[0].State != muster.WorkerActive) {
			err = fmt.Errorf("there are %d", len(workers))
		}
		return err
	})
	spec := system.spec()
	job := outer.Submit(&muster.Spec{Name: name, Tasks: []muster.TaskSpec{spec}})
	outer.AwaitRunning(job.ID, 1)
	inner.Await("it runs on the fleet", time.Minute, func() error { return checkOnlyJob(t.Context(), inner.Client, muster.JobRunning) })

	bridge.Kill()
	mustertest.StartMuster(t, "bridge", env, args...)
	outer.Server.Kill()
	outer.StartServer()
	worker.Kill()
	inner.StartWorker("w", dir)
	inner.Server.Kill()
	inner.StartServer()

	ended := outer.Wait(job.ID, 2*time.Minute)
	if ended.State != muster.JobSucceeded {
		t.Errorf("the job ended as %s: %+v", ended.State, outer.Tasks(job.ID))
	}
	task := outer.Tasks(job.ID)[0]
	if task.Attempt != 1 {
		t.Errorf("it took %d attempts", task.Attempt)
	}
	if !strings.Contains(string(task.Result), system.result) {
		t.Errorf("the result is %s, want one with %s", task.Result, system.result)
	}
	if err := checkOnlyJob(t.Context(), inner.Client, muster.JobSucceeded); err != nil {
		t.Error(err)
	}
	if late, err := outer.Client.LateReports(t.Context(), job.ID); err != nil || len(late) > 0 {
		t.Errorf("late reports %v, %v", late, err)
	}
}

// checkOnlyJob returns an error unless there is one job, in this state.
func checkOnlyJob(ctx context.Context, c *client.Client, want muster.JobState) error {
	var found []muster.Job
	for job, err := range c.Jobs(ctx, client.JobQuery{}) {
		if err != nil {
			return err
		}
		found = append(found, job)
	}
	if len(found) != 1 || found[0].State != want {
		text, err := json.Marshal(found)
		return errors.Join(fmt.Errorf("there are %d jobs, want one that is %s: %s", len(found), want, text), err)
	}
	return nil
}

// TestDropIn runs muster worker NAME with a gateway: this machine runs the jobs with a private server.
func TestDropIn(t *testing.T) {
	t.Parallel()
	addr := mustertest.ReservePort(t)
	outer := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--dialect", "qubix=" + addr}})
	data := t.TempDir()
	env := []string{"MUSTER_DATA=" + data}
	dropIn := mustertest.StartMuster(t, "dropin", env, "worker", "qubix", "--backend", "http://"+addr, "--price", "2.5", "--name", "My Gaming PC")
	outer.Await("it is a worker", time.Minute, func() error {
		w, err := outer.Client.Worker(t.Context(), "My Gaming PC")
		if err == nil && w.Price != 2.5 {
			err = fmt.Errorf("its price is %v", w.Price)
		}
		return err
	})
	system := bridgedSystems()["qubix"]
	job := outer.Submit(&muster.Spec{Tasks: []muster.TaskSpec{system.spec()}})
	outer.AwaitRunning(job.ID, 1)
	dropIn.Signal(os.Interrupt) // what runs ends and is reported first
	ended := outer.Wait(job.ID, 2*time.Minute)
	if ended.State != muster.JobSucceeded {
		t.Errorf("the job ended as %s: %+v", ended.State, outer.Tasks(job.ID))
	}
	if code := dropIn.WaitExit(time.Minute); code != 0 {
		t.Errorf("it ended with exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(data, "bridge")); err != nil {
		t.Error(err)
	}
}

// TestBridgeToGatewayOverRedis is TestBridgeToGateway for MLOC, whose programs communicate over Redis: a task is submitted after each kill -9,
// including one of Redis, and ends once.
func TestBridgeToGatewayOverRedis(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed: scripts/need redis-server")
	}
	addr, redis := mustertest.ReservePort(t), mustertest.ReservePort(t)
	_, port, _ := strings.Cut(redis, ":")
	startRedis := func() *mustertest.Process {
		return mustertest.StartProgram(t, program, "redis", nil, "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", t.TempDir())
	}
	server := startRedis()
	outer := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--dialect", "mloc=" + addr + ",redis=redis://" + redis + "/0"}})
	inner := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	worker := inner.StartWorker("w", dir)
	env := []string{
		"MUSTER_TOKEN=" + mustertest.AdminToken, "REDIS_URL=redis://" + redis + "/0", "RESULTS_DIR=" + t.TempDir(), "WORKER_ID=bridge", "HEARTBEAT_INTERVAL_SEC=1",
		"ORCHESTRATOR_BASE_URL=http://" + addr,
	}
	data := t.TempDir()
	startBridge := func() *mustertest.Process {
		return mustertest.StartMuster(t, "bridge", env, "bridge", "mloc", "--server", "http://"+inner.Addr, "--data", data)
	}
	bridge := startBridge()
	kills := []struct {
		target string
		do     func()
	}{
		{"nobody", func() {}},
		{"the bridge", func() { bridge.Kill(); bridge = startBridge() }},
		{"the host", func() { outer.Server.Kill(); outer.StartServer() }},
		{"Redis", func() { server.Kill(); server = startRedis() }},
		{"the fleet's server", func() { inner.Server.Kill(); inner.StartServer() }},
		{"the fleet's worker", func() { worker.Kill(); worker = inner.StartWorker("w", dir) }},
	}
	for i, kill := range kills {
		job := outer.Submit(&muster.Spec{Name: kill.target, Tasks: []muster.TaskSpec{{Kind: "echo", Input: json.RawMessage(`{"n": 1}`)}}})
		kill.do()
		if ended := outer.Wait(job.ID, 2*time.Minute); ended.State != muster.JobSucceeded {
			t.Errorf("kill -9 of %s: the job ended as %s: %+v", kill.target, ended.State, outer.Tasks(job.ID))
		}
		if late, err := outer.Client.LateReports(t.Context(), job.ID); err != nil || len(late) > 0 {
			t.Errorf("kill -9 of %s: late reports %v, %v", kill.target, late, err)
		}
		n := 0
		for job, err := range inner.Client.Jobs(t.Context(), client.JobQuery{}) {
			if err != nil || job.State != muster.JobSucceeded {
				t.Errorf("kill -9 of %s: a job of the fleet is %s, %v", kill.target, job.State, err)
			}
			n++
		}
		t.Logf("kill -9 of %s: %d of %d tasks so far ran more than once", kill.target, n-i-1, i+1)
	}
}

// TestBridgesOnALossyConnection breaks the connections of bridges during their requests, mostly during the report of a task and its files:
// each task ends once, with its outcome in the fleet.
func TestBridgesOnALossyConnection(t *testing.T) {
	t.Parallel()
	systems := bridgedSystems()
	for name, file := range map[string]string{"qubix": "", "trainforge": "noise", "dtf": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := mustertest.ReservePort(t)
			outer := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--dialect", fmt.Sprintf(systems[name].dialect, addr)}})
			inner := mustertest.New(t, t.TempDir())
			inner.StartWorker("w", t.TempDir())
			line := newLossyProxy(t, addr)
			args := append([]string{"bridge", name, "--server", "http://" + inner.Addr, "--data", t.TempDir()}, systems[name].args(t, line.addr)...)
			mustertest.StartMuster(t, "bridge", []string{"MUSTER_TOKEN=" + mustertest.AdminToken}, args...)
			spec := muster.TaskSpec{Kind: "hash", Input: json.RawMessage(`{"data": "abc"}`)}
			if name != "dtf" {
				spec = muster.TaskSpec{Kind: muster.KindScript, Script: &muster.Script{
					Text:        "import os, random\nprint('x' * 3000)\nopen(os.path.join(os.environ['MUSTER_OUT'], 'noise'), 'wb').write(random.Random(1).randbytes(3_000_000))\n",
					Interpreter: []string{"python3"},
				}}
			}
			var jobs []muster.JobID
			for range 2 {
				jobs = append(jobs, outer.Submit(&muster.Spec{Name: name, Tasks: []muster.TaskSpec{spec}}).ID)
			}
			for _, job := range jobs {
				if ended := outer.Wait(job, 3*time.Minute); ended.State != muster.JobSucceeded {
					t.Errorf("the job ended as %s: %+v", ended.State, outer.Tasks(job))
				}
				task := outer.Tasks(job)[0]
				if late, err := outer.Client.LateReports(t.Context(), job); err != nil || len(late) > 0 || task.Attempt != 1 {
					t.Errorf("attempt %d, late reports %v, %v", task.Attempt, late, err)
				}
				files, err := outer.Client.Artifacts(t.Context(), task.ID)
				if found := slices.ContainsFunc(files, func(a muster.Artifact) bool { return a.Size == 3_000_000 }); err != nil || found != (file != "") {
					t.Errorf("the files %+v, %v", files, err)
				}
			}
			n := 0
			for job, err := range inner.Client.Jobs(t.Context(), client.JobQuery{}) {
				if err != nil || job.State != muster.JobSucceeded {
					t.Errorf("a job of the fleet is %s, %v", job.State, err)
				}
				n++
			}
			if cuts := line.cuts.Load(); n != len(jobs) || cuts < lossyProxyLimits/2 {
				t.Errorf("the fleet ran %d jobs, and %d connections broke", n, cuts)
			}
		})
	}
}

const lossyProxyLimits = 6

// lossyProxy is a proxy to a server whose first connections break after some bytes of what the client sends.
type lossyProxy struct {
	addr string
	cuts atomic.Int64
}

func newLossyProxy(t *testing.T, server string) *lossyProxy {
	t.Helper()
	l := &lossyProxy{addr: mustertest.ReservePort(t)}
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		conns.Wait()
	})
	conns.Go(func() {
		random := rand.New(rand.NewPCG(1, 2))
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			limit := int64(1 << 40)
			if l.cuts.Load() < lossyProxyLimits {
				limit = int64(math.Exp(random.Float64()*9)) + 200 // 201 to some 8,300 bytes
			}
			conns.Go(func() { l.forward(ctx, client, server, limit) })
		}
	})
	return l
}

// forward breaks the connection after limit bytes.
func (l *lossyProxy) forward(ctx context.Context, from net.Conn, server string, limit int64) {
	defer func() { _ = from.Close() }()
	var d net.Dialer
	to, err := d.DialContext(ctx, "tcp", server)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	stop := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer stop()
	var upstream sync.WaitGroup
	defer upstream.Wait()
	upstream.Go(func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	})
	if n, _ := io.CopyN(to, from, limit); n == limit {
		l.cuts.Add(1)
	}
	_, _ = from.Close(), to.Close()
}
