package sweeper_test

import (
	"context"
	"encoding/json"
	"flag"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/retention"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/store/sqlite"
	"github.com/muster-dev/muster/internal/sweeper"
	"github.com/muster-dev/muster/internal/tasklog"
)

var tasksADay = flag.Int("tasks", 300, "tasks a day of TestThirtyDays")

// server is a whole server without a network: stores, engine and sweeper.
type server struct {
	store   *sqlite.Store
	logs    *tasklog.Dir
	blobs   *blob.Dir
	engine  *engine.Engine
	cancel  context.CancelFunc
	stopped chan struct{}
}

// startServer starts a server, and returns how long it took until it was ready.
func startServer(t *testing.T, dir string) (s *server, took time.Duration) {
	t.Helper()
	began := monotonic()
	s = &server{stopped: make(chan struct{})}
	var err error
	if s.logs, err = tasklog.OpenIndexedDir(filepath.Join(dir, "logs")); err != nil {
		t.Fatal(err)
	}
	used, err := s.logs.LastJob()
	if err != nil {
		t.Fatal(err)
	}
	if s.store, err = sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{UsedJob: used}); err != nil {
		t.Fatal(err)
	}
	if s.blobs, err = blob.OpenDir(filepath.Join(dir, "blobs")); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	s.engine = engine.New(engine.Config{Store: s.store, Logs: s.logs, Blobs: s.blobs, Events: eventbus.New("e"), Log: log})
	limit := func(days int) *retention.Limit { return &retention.Limit{Age: muster.Duration(days) * day} }
	sweep := sweeper.New(sweeper.Config{
		Store: s.store, Engine: s.engine, Logs: s.logs, Blobs: s.blobs, Log: log, Server: retention.DefaultServerPolicy(),
		Options: retention.Policy{Jobs: limit(2), Logs: limit(1), Artifacts: limit(1)},
	})
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	engineDone := make(chan struct{})
	go func() {
		defer close(engineDone)
		_ = s.engine.Run(ctx)
	}()
	<-s.engine.Ready()
	took = monotonic() - began
	go func() {
		defer close(s.stopped)
		_ = sweep.Run(ctx)
		<-engineDone
	}()
	return s, took
}

// monotonic is the real time, also in a bubble.
func monotonic() time.Duration {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	text, _, _ := strings.Cut(string(b), " ")
	seconds, _ := strconv.ParseFloat(text, 64)
	return time.Duration(seconds * float64(time.Second))
}

func (s *server) stop(t *testing.T) {
	t.Helper()
	s.cancel()
	<-s.stopped
	if err := s.store.Close(); err != nil {
		t.Error(err)
	}
	if err := s.logs.Close(); err != nil {
		t.Error(err)
	}
}

// day submits the jobs of a day, half of whose tasks are single-task jobs, uploads a file for each tenth, and cancels them after they logged a line.
func (s *server) day(t *testing.T, number int) {
	t.Helper()
	const perJob = 50 // tasks of the larger jobs
	submit := func(n int64, folder string) {
		task := muster.TaskSpec{Kind: muster.KindNoop}
		if n > 1 {
			task.Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: n - 1, Step: 1}}}
		}
		task.Files = folder
		id, err := s.engine.Submit(t.Context(), (&muster.Spec{Tasks: []muster.TaskSpec{task}}).Normalize(), store.IdempotencyKey{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if _, err := s.logs.Append(t.Context(), muster.AttemptID{Task: muster.TaskID{Job: id, Num: int(i)}, N: 1}, 0, []byte(strings.Repeat("a line of output\n", 20))); err != nil {
				t.Fatal(err)
			}
		}
		spans := make([]muster.Span, 0, n)
		for i := range int(n) { // one by one, so that each has a row
			spans = append(spans, muster.Span{First: i, Last: i})
		}
		if err := s.engine.Cancel(t.Context(), id, spans); err != nil {
			t.Fatal(err)
		}
	}
	single := *tasksADay / 2
	for i := range single {
		folder := ""
		if i%10 == 0 {
			folder = s.upload(t, number*single+i)
		}
		submit(1, folder)
		time.Sleep(day.Std() / time.Duration(2*single))
	}
	for range (*tasksADay - single) / perJob {
		submit(perJob, "")
		time.Sleep(day.Std() / time.Duration(2*max(1, (*tasksADay-single)/perJob)))
	}
}

// upload stores a folder with a file of its own.
func (s *server) upload(t *testing.T, n int) string {
	t.Helper()
	file := []byte(strings.Repeat(strconv.Itoa(n)+" ", 500))
	tree, err := json.Marshal(muster.Tree{Files: []muster.File{{Path: "f", Size: int64(len(file)), SHA256: hashOf(file)}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{file, tree} {
		if err := s.blobs.Put(t.Context(), hashOf(data), 0, strings.NewReader(string(data))); err != nil {
			t.Fatal(err)
		}
		if err := s.store.GrantBlobs(t.Context(), []store.Grantee{"p:default"}, []store.Blob{{SHA256: hashOf(data), Size: int64(len(data))}}); err != nil {
			t.Fatal(err)
		}
	}
	return "sha256:" + hashOf(tree)
}

// sizes are what must be constant.
type sizes struct {
	database, files int64
	heap            uint64
}

func measure(t *testing.T, dir string) (s sizes) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if strings.HasPrefix(d.Name(), "muster.db") {
			s.database += info.Size()
		} else {
			s.files += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s.heap = m.HeapAlloc
	return s
}

// A server with the same load each day keeps its size on disk and in memory for 30 days, and starts again in less than two seconds.
func TestThirtyDays(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates 30 days")
	}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(20 * 365 * 24 * time.Hour)
		s, _ := startServer(t, dir)
		var early sizes
		for n := range 30 {
			s.day(t, n)
			if n == 5 {
				early = measure(t, dir)
			}
		}
		late := measure(t, dir)
		t.Logf("%d tasks a day; after 6 days: %+v; after 30: %+v", *tasksADay, early, late)
		const slack = 1.15
		if float64(late.database) > slack*float64(early.database)+1<<20 || float64(late.files) > slack*float64(early.files) || float64(late.heap) > slack*float64(early.heap)+4<<20 {
			t.Error("the server grows")
		}
		s.stop(t)
		s, took := startServer(t, dir)
		t.Logf("the start took %s", took)
		if took > 2*time.Second {
			t.Errorf("the start took %s", took)
		}
		s.stop(t)
	})
}
