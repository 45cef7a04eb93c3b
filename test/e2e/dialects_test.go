//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// bridged is a system over which one Muster serves another: the gateway of the first is the server of the bridge of the second.
type bridged struct {
	dialect string                                // of the first server, with %s for its address
	bridge  func(t *testing.T, addr string) []string // arguments of muster bridge
	env     func(t *testing.T, addr string) []string // its variables
	spec    func() muster.TaskSpec                // takes about ten seconds
	check   func(t *testing.T, task muster.Task)
}

// slowly is a Python script that takes ten seconds and says how far it is.
const slowly = `
import time
for i in range(10):
    print("step", i, flush=True)
    time.sleep(1)
print("done")
`

func script() muster.TaskSpec {
	return muster.TaskSpec{Kind: muster.KindScript, Script: &muster.Script{Text: slowly, Interpreter: []string{"python3"}}}
}

func bridgedSystems() map[string]bridged {
	return map[string]bridged{
		"qubix": {
			dialect: "qubix=%s",
			bridge:  func(_ *testing.T, addr string) []string { return []string{"--backend", "http://" + addr} },
			spec: func() muster.TaskSpec {
				t := script()
				t.Script.Interpreter = nil
				t.Script.Text = "#!/usr/bin/env python3" + slowly
				return t
			},
			check: func(t *testing.T, task muster.Task) {
				t.Helper()
				if !strings.Contains(string(task.Result), "step 9") || !strings.Contains(string(task.Result), `"exitCode":0`) {
					t.Errorf("the result is %s", task.Result)
				}
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

func bridgeToGateway(t *testing.T, name string, system bridged) {
	t.Helper()
	addr := mustertest.Port(t)
	outer := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--dialect", fmt.Sprintf(system.dialect, addr)}})
	inner := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	worker := inner.StartWorker("w", dir)
	outbox := t.TempDir()
	env := []string{"MUSTER_TOKEN=" + mustertest.AdminToken}
	if system.env != nil {
		env = append(env, system.env(t, addr)...)
	}
	args := append([]string{"bridge", name, "--server", "http://" + inner.Addr, "--data", outbox}, system.bridge(t, addr)...)
	bridge := mustertest.Start(t, "bridge", env, args...)

	outer.Await("the bridge is a worker", time.Minute, func() error {
		workers, err := outer.Client.Workers(t.Context())
		if err == nil && (len(workers) != 1 || workers[0].State != muster.WorkerActive) {
			err = fmt.Errorf("there are %d", len(workers))
		}
		return err
	})
	spec := system.spec()
	job := outer.Submit(&muster.Spec{Name: name, Tasks: []muster.TaskSpec{spec}})
	outer.Running(job.ID, 1)
	inner.Await("it runs on the fleet", time.Minute, func() error { return onlyJob(t.Context(), inner.Client, muster.JobRunning) })

	bridge.Kill()
	bridge = mustertest.Start(t, "bridge", env, args...)
	outer.Server.Kill()
	outer.StartServer()
	worker.Kill()
	worker = inner.StartWorker("w", dir)
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
	system.check(t, task)
	if err := onlyJob(t.Context(), inner.Client, muster.JobSucceeded); err != nil {
		t.Error(err)
	}
	if late, err := outer.Client.Late(t.Context(), job.ID); err != nil || len(late) > 0 {
		t.Errorf("late reports %v, %v", late, err)
	}
	_ = bridge
	_ = worker
}

// onlyJob returns an error unless there is one job, in this state.
func onlyJob(ctx context.Context, c *client.Client, want muster.JobState) error {
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

// TestDropIn runs muster worker NAME against a gateway: this machine serves with a server of its own that nothing else reaches.
func TestDropIn(t *testing.T) {
	t.Parallel()
	addr := mustertest.Port(t)
	outer := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--dialect", "qubix=" + addr}})
	data := t.TempDir()
	env := []string{"MUSTER_DATA=" + data}
	dropIn := mustertest.Start(t, "dropin", env, "worker", "qubix", "--backend", "http://"+addr, "--price", "2.5", "--name", "My Gaming PC")
	outer.Await("it is a worker", time.Minute, func() error {
		w, err := outer.Client.Worker(t.Context(), "My Gaming PC")
		if err == nil && w.Price != 2.5 {
			err = fmt.Errorf("its price is %v", w.Price)
		}
		return err
	})
	system := bridgedSystems()["qubix"]
	job := outer.Submit(&muster.Spec{Tasks: []muster.TaskSpec{system.spec()}})
	outer.Running(job.ID, 1)
	dropIn.Signal(os.Interrupt) // what runs ends and is reported first
	ended := outer.Wait(job.ID, 2*time.Minute)
	if ended.State != muster.JobSucceeded {
		t.Errorf("the job ended as %s: %+v", ended.State, outer.Tasks(job.ID))
	}
	if code := dropIn.Exit(time.Minute); code != 0 {
		t.Errorf("it ended with exit code %d", code)
	}
	if _, err := os.Stat(filepath.Join(data, "bridge")); err != nil {
		t.Error(err)
	}
}
