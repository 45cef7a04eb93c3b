package dtf_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/bridge"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/dialect/dtf"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
)

var update = flag.Bool("update", false, "update the golden files")

// newTestBridge makes a bridge to coordinators with short intervals.
func newTestBridge(tb testing.TB, w *env, dir string, change func(*dtf.BridgeConfig), coordinators ...*coordinator) *dtf.Bridge {
	tb.Helper()
	cfg := dtf.BridgeConfig{
		WorkerID: "w1", Name: "vm", APIKey: coordinators[0].key, Secret: coordinators[0].secret, Tags: []string{"transformers"},
		Heartbeat: 100 * time.Millisecond, HealthCheck: 200 * time.Millisecond, ReconnectInterval: 20 * time.Millisecond, Dir: dir, Version: "test",
		Core: bridge.Config{Client: w.client, ProgressInterval: 50 * time.Millisecond, RetryDelay: 20 * time.Millisecond, Log: testkit.Logger(tb)},
	}
	for _, c := range coordinators {
		cfg.Coordinators = append(cfg.Coordinators, c.http.URL)
	}
	if change != nil {
		change(&cfg)
	}
	b, err := dtf.NewBridge(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	b.SetTimeouts(100*time.Millisecond, 0)
	return b
}

func execute(id, taskType, config string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type":"execute_task","task_id":%q,"task_type":%q,"config":%s}`, id, taskType, config))
}

func one(tb testing.TB, c *coordinator, id string) map[string]any {
	tb.Helper()
	testkit.Await(tb, "the result of "+id, func() bool { return len(c.got(id)) > 0 })
	return c.got(id)[0]
}

func golden(tb testing.TB, name, got string) {
	tb.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	if got != string(want) {
		tb.Errorf("%s differs; -update writes it. It is\n%s", name, got)
	}
}

// A session with each coordinator equals the recorded transcript: authentication, registration, heartbeats, tasks, failures, batches.
func TestBridgeSession(t *testing.T) {
	for _, r0 := range []bool{true, false} {
		name := map[bool]string{true: "bridge-r0.txt", false: "bridge-r1.txt"}[r0]
		t.Run(name, func(t *testing.T) {
			w := startServer(t, serverd.Config{})
			w.worker(t)
			c := startCoordinator(t, r0)
			b := newTestBridge(t, w, t.TempDir(), func(cfg *dtf.BridgeConfig) { cfg.ResultsFile = filepath.Join(t.TempDir(), "results.db") }, c)
			stop := dialecttest.Background(t, b.Run)
			testkit.Await(t, "a heartbeat", func() bool { beats, _ := c.count(); return beats > 0 })
			c.push(string(execute("hash-001", "hash", `{"payload":"abc","algorithm":"sha256"}`)))
			r := one(t, c, "hash-001")
			if digest := r["result"].(map[string]any)["digest"]; r["status"] != "completed" || digest != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
				t.Errorf("the digest: %v", r)
			}
			c.push(string(execute("bad-001", "train_everything", `{}`)))
			if r := one(t, c, "bad-001"); r["status"] != "failed" || r["error"] != "Unknown task type: train_everything" {
				t.Errorf("an unknown type: %v", r)
			}
			c.push(`{"type":"execute_task_batch","tasks":[{"task_id":"batch-1","task_type":"hash","config":{"data":"é","encoding":"latin-1"}}]}`)
			one(t, c, "batch-1")
			c.push(string(execute("bad-002", "hash", `{"data":"x","algorithm":"rot13"}`)))
			if r := one(t, c, "bad-002"); r["status"] != "failed" || !strings.Contains(fmt.Sprint(r["error"]), "algorithm") {
				t.Errorf("an unknown algorithm: %v", r)
			}
			stop()
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.bad > 0 {
				t.Errorf("%d frames had a wrong signature", c.bad)
			}
			golden(t, name, strings.Join(c.script, "\n")+"\n")
		})
	}
}

// A test runs for real, with its files from the folder of tests, and its result is as DTF's workers return it.
func TestBridgeRunsTests(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import pytest").Run(); err != nil {
		t.Skip("there is no pytest")
	}
	w := startServer(t, serverd.Config{})
	w.worker(t)
	tests := t.TempDir()
	if err := os.WriteFile(filepath.Join(tests, "test_bert.py"), []byte("import sys\ndef test_right(): pass\ndef test_wrong(): assert 1 == 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startCoordinator(t, false)
	b := newTestBridge(t, w, t.TempDir(), func(cfg *dtf.BridgeConfig) { cfg.TestsDir = tests }, c)
	dialecttest.Background(t, b.Run)
	testkit.Await(t, "a heartbeat", func() bool { beats, _ := c.count(); return beats > 0 })
	c.push(string(execute("test-bert-001", "test", `{"test_file":"test_bert.py","test_args":["-k","right"]}`)))
	r := one(t, c, "test-bert-001")
	if got := fmt.Sprintf("%v %v %v", r["status"], r["result"].(map[string]any)["test_count"], r["result"].(map[string]any)["success"]); got != "completed 1 true" {
		t.Errorf("it is %v", r)
	}
	c.push(string(execute("test-bert-002", "test", `{"test_file":"test_bert.py"}`)))
	if r := one(t, c, "test-bert-002"); r["status"] != "failed" || !strings.Contains(fmt.Sprint(r["error"]), "1 of 2") && !strings.Contains(fmt.Sprint(r["error"]), "failed") {
		t.Errorf("a test that fails: %v", r)
	}
	c.push(string(execute("test-bert-003", "test", `{"test_file":"../test_bert.py"}`)))
	if r := one(t, c, "test-bert-003"); r["status"] != "failed" {
		t.Errorf("a file outside: %v", r)
	}
}

// A bridge that is killed at any moment reports each task once to a coordinator that answers, and runs it once.
func TestBridgeOutlivesCutsAndRestarts(t *testing.T) {
	w := startServer(t, serverd.Config{})
	w.worker(t)
	c := startCoordinator(t, false)
	c.always = true // the same tasks forever
	const n = 12
	for i := range n {
		c.tasks = append(c.tasks, execute(fmt.Sprintf("t%d", i), "hash", fmt.Sprintf(`{"data":"%d"}`, i)))
	}
	c.lose = 4 // results that are read, and whose connection is cut before the answer
	dir := t.TempDir()
	for range 4 {
		b := newTestBridge(t, w, dir, nil, c)
		stop := dialecttest.Background(t, b.Run)
		beats, _ := c.count()
		testkit.Await(t, "a heartbeat", func() bool { now, _ := c.count(); return now > beats })
		c.cut()
		stop()
	}
	b := newTestBridge(t, w, dir, nil, c)
	dialecttest.Background(t, b.Run)
	for i := range n {
		one(t, c, fmt.Sprintf("t%d", i))
	}
	testkit.Await(t, "everything is reported", func() bool { return b.Pending() == 0 })
	jobs := 0
	for _, err := range w.client.Jobs(t.Context(), client.JobQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		jobs++
	}
	if jobs != n {
		t.Errorf("%d tasks became %d jobs", n, jobs)
	}
	again := 0
	for i := range n {
		again += len(c.got(fmt.Sprintf("t%d", i))) - 1
	}
	if again > 4+5 { // those whose answer was lost, and those that were under way at a restart
		t.Errorf("%d results were sent again", again)
	}
	if got := b.ID(); got != "w1" {
		t.Errorf("its id is %s", got)
	}
}

// A bridge for one worker is connected while that worker is active, and accepts only its kinds.
func TestBridgeOfOneWorker(t *testing.T) {
	w := startServer(t, serverd.Config{})
	c := startCoordinator(t, false)
	b := newTestBridge(t, w, t.TempDir(), func(cfg *dtf.BridgeConfig) { cfg.Core.Worker = "here" }, c)
	b.SetTimeouts(100*time.Millisecond, 50*time.Millisecond)
	dialecttest.Background(t, b.Run)
	for range 3 {
		last := b.CheckedAt()
		testkit.Await(t, "a look at the fleet", func() bool { return b.CheckedAt().After(last) })
	}
	if _, n := c.count(); n > 0 {
		t.Error("it registered for a worker that is not there")
	}
	for round := range 2 {
		stop := w.worker(t)
		testkit.Await(t, "it registers", func() bool { _, n := c.count(); return n > round })
		id := fmt.Sprintf("t%d", round)
		c.push(string(execute(id, "hash", `{"data":"a"}`)))
		if r := one(t, c, id); r["status"] != "completed" {
			t.Errorf("%v", r)
		}
		stop()
		testkit.Await(t, "the connection ends", func() bool { return !b.Connected() })
	}
}

// A task that the coordinator moves to another worker runs there, too, although the bridge of the first one had it.
func TestBridgeGetsATaskOfAnother(t *testing.T) {
	w := startServer(t, serverd.Config{})
	w.worker(t)
	c := startCoordinator(t, false)
	for round, worker := range []string{"", "here"} {
		b := newTestBridge(t, w, t.TempDir(), func(cfg *dtf.BridgeConfig) { cfg.WorkerID, cfg.Core.Worker = fmt.Sprintf("w%d", round), worker }, c)
		stop := dialecttest.Background(t, b.Run)
		testkit.Await(t, "it registers", func() bool { _, n := c.count(); return n > round })
		c.push(string(execute("moved", "hash", `{"data":"a"}`)))
		testkit.Await(t, "a result", func() bool { return len(c.got("moved")) > round })
		if r := c.got("moved")[round]; r["status"] != "completed" {
			t.Errorf("%v", r)
		}
		testkit.Await(t, "it is acknowledged", func() bool { return b.Pending() == 0 })
		stop()
	}
}

func TestBridgeSwitchesCoordinators(t *testing.T) {
	w := startServer(t, serverd.Config{})
	w.worker(t)
	first, second := startCoordinator(t, false), startCoordinator(t, false)
	second.refuse, second.noTokens = true, true
	registry := filepath.Join(t.TempDir(), "coordinators.json")
	if err := os.WriteFile(registry, []byte(first.http.URL+"\n"+second.http.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	first.tasks = []json.RawMessage{execute("a", "hash", `{"data":"a"}`)}
	b := newTestBridge(t, w, t.TempDir(), func(cfg *dtf.BridgeConfig) {
		cfg.HighAvailability, cfg.Registry, cfg.ReconnectAttempts = true, registry, 3
	}, first)
	if b.HeartbeatInterval() != 50*time.Millisecond {
		t.Errorf("health is reported every %v", b.HeartbeatInterval())
	}
	dialecttest.Background(t, b.Run)
	one(t, first, "a")
	first.set(func() { first.refuse, first.tasks = true, nil })
	second.set(func() { second.refuse = false })
	first.cut()
	testkit.Await(t, "the second one has the worker", func() bool { _, n := second.count(); return n > 0 })
	second.push(string(execute("b", "hash", `{"data":"b"}`)))
	one(t, second, "b")
	if got := b.Coordinator(); got != second.http.URL {
		t.Errorf("the last one is %s", got)
	}
	second.set(func() { // the token of the first one was refused, and the key used at once
		if second.tokens != 1 {
			t.Errorf("%d tokens were refused", second.tokens)
		}
	})
}

// The error of a bridge that a coordinator refuses says why.
func TestBridgeIsRefused(t *testing.T) {
	t.Parallel()
	w := startServer(t, serverd.Config{})
	for _, tc := range []struct {
		name   string
		r0     bool
		change func(*dtf.BridgeConfig)
		want   string
	}{
		{"a wrong key", false, func(c *dtf.BridgeConfig) { c.APIKey = "wrong" }, "Invalid API key"},
		{"no secret", true, func(c *dtf.BridgeConfig) { c.Secret = "" }, "use --security-config with its security_config.json"},
		{"another secret", true, func(c *dtf.BridgeConfig) { c.Secret = "wrong" }, "check the secret_key"},
		{"no coordinator", false, func(c *dtf.BridgeConfig) { c.Coordinators, c.ReconnectAttempts = []string{"http://127.0.0.1:1"}, 2 }, "no connection after 2 tries"},
		{"no socket", false, func(c *dtf.BridgeConfig) {
			c.Coordinators, c.ReconnectAttempts = []string{c.Coordinators[0] + "/other"}, 1
		}, "has no /ws"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newTestBridge(t, w, t.TempDir(), tc.change, startCoordinator(t, tc.r0))
			b.SetTimeouts(100*time.Millisecond, 50*time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			if err := b.Run(ctx); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it ended with %v, not with %q", err, tc.want)
			}
		})
	}
}

func TestBridgeCancels(t *testing.T) {
	w := startServer(t, serverd.Config{}) // without a worker: the task waits
	c := startCoordinator(t, false)
	b := newTestBridge(t, w, t.TempDir(), nil, c)
	b.SetTimeouts(100*time.Millisecond, 50*time.Millisecond)
	dialecttest.Background(t, b.Run)
	testkit.Await(t, "a heartbeat", func() bool { beats, _ := c.count(); return beats > 0 })
	c.push(string(execute("long", "hash", `{"data":"a"}`)))
	testkit.Await(t, "the job is there", func() bool {
		for range w.client.Jobs(t.Context(), client.JobQuery{States: []muster.JobState{muster.JobQueued}}) {
			return true
		}
		return false
	})
	c.push(`{"type":"cancel_task","task_id":"long","reason":"migration"}`)
	testkit.Await(t, "a heartbeat says so", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.ContainsFunc(c.beats, func(m map[string]any) bool {
			n, _ := m["task_cancelled"].(map[string]any)
			return n["task_id"] == "long" && n["reason"] == "migration" && m["health_status"] == nil
		})
	})
	if got := c.got("long"); len(got) > 0 {
		t.Errorf("a cancelled task has a result: %v", got)
	}
	// Invalid messages have no effect.
	for _, bad := range []string{`{`, `[]`, `{"type":5}`, `{"type":"execute_task"}`, `{"type":"execute_task","task_id":7}`, `{"type":"cancel_task","task_id":"never"}`, `{"type":"strange"}`, `{"type":"error"}`, `{"type":"task_result_response","task_id":"never"}`, `{"type":"execute_task","task_id":"x","task_type":"hash","config":[1]}`} {
		c.push(bad)
	}
	if r := one(t, c, "x"); r["status"] != "failed" {
		t.Errorf("a config that is not an object: %v", r)
	}
}

// After Stop is closed a bridge accepts no new tasks, reports the others and returns.
func TestBridgeDrains(t *testing.T) {
	w := startServer(t, serverd.Config{})
	w.worker(t)
	c := startCoordinator(t, false)
	c.tasks = []json.RawMessage{execute("a", "hash", `{"data":"a"}`)}
	stop := make(chan struct{})
	b := newTestBridge(t, w, t.TempDir(), func(cfg *dtf.BridgeConfig) { cfg.Stop = stop }, c)
	done := make(chan error, 1)
	go func() { done <- b.Run(t.Context()) }()
	one(t, c, "a")
	close(stop)
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testTimeout):
		t.Error("it does not end")
	}
}
