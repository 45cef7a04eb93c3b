package mlochost_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/testkit"
)

var update = flag.Bool("update", false, "write the golden files")

// TestTranscript holds what is said on the channels and over HTTP while a worker runs one task, but for heartbeats.
func TestTranscript(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	watcher := w.redis.Client()
	defer func() { _ = watcher.Close() }()
	sub := watcher.Subscribe(t.Context(), "tasks", "tasks.events", "workers.events")
	for range 3 {
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	text := map[string][]string{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range sub.Channel() {
			who := m.Channel
			if !strings.Contains(m.Payload, `"payload"`) && who == "workers.events" {
				who += " (host)"
			}
			if strings.Contains(m.Payload, "HEARTBEAT") {
				continue
			}
			mu.Lock()
			text[who] = append(text[who], m.Payload)
			mu.Unlock()
		}
	}()
	s := newFakeWorker(t, w.redis, "w1")
	s.execute = func(m message) (map[string]any, map[string]string, string) {
		result, _, _ := echo(m)
		return result, map[string]string{"final_model.tar.gz": "weights"}, ""
	}
	s.register().listen()
	w.active("w1")
	if task := w.waitJob(w.submit(echoTask(`{"n": 9}`)).ID); task.State != muster.Succeeded {
		t.Fatal(task.Message)
	}
	testkit.Await(t, "the worker is idle", func() bool { mu.Lock(); defer mu.Unlock(); return len(text["workers.events"]) == 4 })
	s.sigint()
	testkit.Await(t, "the worker left", func() bool { mu.Lock(); defer mu.Unlock(); return len(text["workers.events"]) == 5 })
	_ = sub.Close()
	<-done
	var out strings.Builder
	for _, who := range []string{"tasks", "workers.events (host)", "tasks.events", "workers.events"} {
		fmt.Fprintf(&out, "== %s\n%s\n", who, strings.Join(text[who], "\n"))
	}
	fmt.Fprintf(&out, "== answers of the host\n%s\n", strings.Join(s.answers, "\n"))
	got := out.String()
	for pattern, by := range map[string]string{
		`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`: "TASK", `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00`: "TIME", `127\.0\.0\.1:\d+`: "HOST", `"runtime_sec":[0-9.e-]+`: `"runtime_sec":SECONDS`,
	} {
		got = regexp.MustCompile(pattern).ReplaceAllString(got, by)
	}
	golden := filepath.Join("testdata", "session.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the session became\n%s\nand not\n%s", got, want)
	}
}
