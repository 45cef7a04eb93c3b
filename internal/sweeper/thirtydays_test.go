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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/eventbus"
	"github.com/muster-dev/muster/internal/mustertest"
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
	last    atomic.Int64 // the job that was submitted last, about
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

// load is what a server gets each day. Half of the tasks of a small load and 30,000 of a large one are jobs of their own, each of which logs; the rest
// are arrays, whose first tasks log.
type load struct{ singles, arrays, perArray int }

func loadOf(tasks int) load {
	l := load{singles: min(tasks/2, 30_000), perArray: min(max(50, tasks/100), 10_000)}
	l.arrays = (tasks - l.singles) / l.perArray
	return l
}

// together is how many clients submit at the same time.
const together = 16

// day submits the jobs of a day, and cancels them after they logged. Each tenth job of a single task uploads a file before.
func (s *server) day(t *testing.T, number int, l load) {
	t.Helper()
	rounds := max(l.singles/together, 1)
	for i := range rounds {
		var folders []string // uploaded before the jobs: two writers would wait for each other, see TestThirtyDays
		for n := i * together; n < min((i+1)*together, l.singles); n++ {
			folder := ""
			if n%10 == 0 {
				folder = s.upload(t, number*l.singles+n)
			}
			folders = append(folders, folder)
		}
		var group errgroup.Group
		for _, folder := range folders {
			group.Go(func() error { return s.job(t, 1, folder) })
		}
		for n := i * l.arrays / rounds; n < (i+1)*l.arrays/rounds; n++ {
			group.Go(func() error { return s.job(t, l.perArray, "") })
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(day.Std() / time.Duration(rounds))
	}
}

// job submits a job, lets its first tasks log, and cancels its tasks one by one, so that each has a row.
func (s *server) job(t *testing.T, tasks int, folder string) error {
	t.Helper()
	task := muster.TaskSpec{Kind: muster.KindNoop, Files: folder}
	if tasks > 1 {
		task.Array = &muster.Array{Ranges: []muster.Range{{First: 0, Last: int64(tasks - 1), Step: 1}}}
	}
	id, err := s.engine.Submit(t.Context(), (&muster.Spec{Tasks: []muster.TaskSpec{task}}).Normalize(), store.IdempotencyKey{})
	if err != nil {
		return err
	}
	s.last.Store(int64(id))
	for i := range min(tasks, 10) {
		if _, err := s.logs.Append(t.Context(), muster.AttemptID{Task: muster.TaskID{Job: id, Num: i}, N: 1}, 0, []byte(strings.Repeat("a line of output\n", 20))); err != nil {
			return err
		}
	}
	for from := 0; from < tasks; from += 1000 {
		var spans []muster.Span
		for i := from; i < min(from+1000, tasks); i++ {
			spans = append(spans, muster.Span{First: i, Last: i})
		}
		if err := s.engine.Cancel(t.Context(), id, spans); err != nil {
			return err
		}
	}
	return nil
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
//
// With -tasks 1000000, and TMPDIR on a disk of memory: see docs/performance.md.
func TestThirtyDays(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates 30 days")
	}
	dir := t.TempDir()
	l := loadOf(*tasksADay)
	const days = 30
	var last, first muster.JobID
	now := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now.Add(-days * day.Std()))) // the program starts afterwards, with the time of the machine
		s, _ := startServer(t, dir)
		// Clients and the sweeper, which acts each full hour, must not wait for each other in SQLite: its pauses are not real time here, and end only if
		// no goroutine waits for a mutex.
		time.Sleep(1234567 * time.Microsecond)
		var early sizes
		for n := range days {
			s.day(t, n, l)
			if n < 5 || n%6 != 5 {
				continue
			}
			late := measure(t, dir)
			t.Logf("%d tasks a day; after %d days: %+v", *tasksADay, n+1, late)
			if n == 5 {
				early = late
				continue
			}
			const slack = 1.15
			if float64(late.database) > slack*float64(early.database)+1<<20 || float64(late.files) > slack*float64(early.files) || float64(late.heap) > slack*float64(early.heap)+4<<20 {
				t.Error("the server grows")
			}
		}
		last = muster.JobID(s.last.Load())
		s.stop(t)
		s, took := startServer(t, dir)
		t.Logf("the start of the stores and the engine took %s", took)
		if took > 2*time.Second {
			t.Errorf("the start of the stores and the engine took %s", took)
		}
		ended, err := s.store.EndedJobs(t.Context(), store.EndedQuery{Project: muster.DefaultProject, Limit: 1})
		if err != nil || len(ended) == 0 {
			t.Fatal(ended, err)
		}
		first = ended[0].ID
		s.stop(t)
	})
	if first < 100 && !t.Failed() {
		t.Errorf("job %s is still there", first)
	}
	mustertest.Program(t) // is built before the time is taken
	began := time.Now()
	c := mustertest.New(t, dir)
	took := time.Since(began)
	t.Logf("the start of the program took %s", took)
	if took > 2*time.Second {
		t.Errorf("the start of the program took %s", took)
	}
	for _, id := range []muster.JobID{first, last} {
		if job, err := c.Client.Job(t.Context(), id); err != nil || job.State != muster.JobCancelled {
			t.Errorf("job %s is %s after the restart: %v", id, job.State, err)
		}
	}
	if _, err := c.Client.Job(t.Context(), 1); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("the removed job 1 is there: %v", err)
	}
}
