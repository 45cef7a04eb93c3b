package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

var update = flag.Bool("update", false, "write the golden frames again")

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) muster.Time { return muster.NewTime(noon.Add(-d)) }

// staticModel makes a model with a fleet that does not change and no server behind it.
func staticModel(t *testing.T, width, height int, color bool) *model {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	stop() // what is followed ends at once
	api, err := client.New("http://fleet.example:8700", "", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(ctx, new(errgroup.Group), api, term.Screen{Color: color})
	m.width, m.height, m.now, m.role = width, height, noon, "admin"
	m.head.fleet = testOverview()
	m.names.byID = map[muster.WorkerID]string{"w-1": "rig-1", "w-2": "a-worker-with-a-very-long-name-in-rack-42"}
	fill(m)
	t.Cleanup(func() {
		for m.pop() {
		}
		if err := m.group.Wait(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func testOverview() *wire.Overview {
	return &wire.Overview{
		Workers:  wire.WorkerCounts{Total: 14, Active: 9, Paused: 1, Draining: 1, Unreachable: 1, Gone: 2, Constrained: 1},
		Capacity: wire.Amounts{Slots: 96, CPUs: 384, Memory: 3 << 40, GPUs: 48, GPUMemory: 1152 << 30},
		Reserved: wire.Amounts{Slots: 12, CPUs: 191.5, Memory: 1 << 40, GPUs: 41, GPUMemory: 900 << 30},
		Used:     wire.Used{CPUs: 180, Memory: 1300 << 30, GPUs: 44.2, GPUMemory: 980 << 30, Power: 14_250},
		Tasks:    counts(map[muster.TaskState]int64{muster.Running: 41, muster.Queued: 123_456, muster.Waiting: 3, muster.Failed: 17, muster.Succeeded: 7_654_321}),
		Rate:     wire.Rate{Started: 12, Finished: 11.84, Failed: 0.2}, CostPerHour: 31.7, PricePerHour: 40,
		Attention:      []wire.Attention{{Severity: wire.Critical, Kind: wire.WorkerUnreachable, Message: "Worker rig-7 has been unreachable for 4m."}, {}},
		AttentionTotal: 2,
	}
}

func counts(byState map[muster.TaskState]int64) (c muster.Counts) {
	for s, n := range byState {
		c[s] = n
	}
	return c
}

func testJobs() []muster.Job {
	return []muster.Job{
		{ID: 1204, Name: "llama-finetune", State: muster.JobRunning, Project: "nlp", Priority: 50, Owner: "ci", Counts: counts(map[muster.TaskState]int64{muster.Running: 1}), CreatedAt: ago(3 * time.Hour), StartedAt: ago(2 * time.Hour)},
		{ID: 1203, Name: "sweep of learning rates with a name that does not fit", State: muster.JobRunning, Project: "vision", Priority: 80, Owner: "ann", Counts: counts(map[muster.TaskState]int64{muster.Running: 40, muster.Succeeded: 612_000, muster.Failed: 17, muster.Queued: 387_943}), CreatedAt: ago(26 * time.Hour), StartedAt: ago(26 * time.Hour)},
		{ID: 1202, Name: "名前が日本語の仕事", State: muster.JobQueued, Project: "default", Priority: 10, Counts: counts(map[muster.TaskState]int64{muster.Queued: 12}), CreatedAt: ago(40 * time.Second)},
		{ID: 1201, Name: "evil\x1b[2Jname\nline", State: muster.JobFailed, Project: "default", Priority: 50, Counts: counts(map[muster.TaskState]int64{muster.Failed: 1, muster.Succeeded: 9}), CreatedAt: ago(50 * time.Hour), StartedAt: ago(50 * time.Hour), FinishedAt: ago(49 * time.Hour)},
		{ID: 7, Name: "hello", State: muster.JobSucceeded, Project: "default", Priority: 50, Counts: counts(map[muster.TaskState]int64{muster.Succeeded: 1}), CreatedAt: ago(90 * time.Hour), StartedAt: ago(90 * time.Hour), FinishedAt: ago(90*time.Hour - 800*time.Millisecond)},
	}
}

func testTasks() []muster.Task {
	id := func(n int) muster.TaskID { return muster.TaskID{Job: 1203, Num: n} }
	return []muster.Task{
		{ID: id(0), Job: 1203, Index: 0, Name: "train", Element: "lr=0.1,seed=1", State: muster.Running, Attempt: 2, Worker: "w-1", Progress: new(0.42), Step: "epoch 3/7", StartedAt: ago(3 * time.Minute), Metrics: map[string]float64{"loss": 0.12}},
		{ID: id(1), Job: 1203, Index: 1, Name: "train", Element: "lr=0.1,seed=2", State: muster.Failed, Attempt: 3, Worker: "w-2", Reason: muster.OutOfMemory, Message: "the kernel killed the process: 12GiB were allowed", StartedAt: ago(2 * time.Hour), FinishedAt: ago(time.Hour)},
		{ID: id(2), Job: 1203, Index: 2, Name: "train", Element: "lr=0.01,seed=1", State: muster.Succeeded, Attempt: 1, Worker: "w-1", StartedAt: ago(2 * time.Hour), FinishedAt: ago(time.Hour)},
		{ID: id(3), Job: 1203, Index: 3, Name: "train", Element: "lr=0.01,seed=2", State: muster.Queued},
	}
}

func testWorkers() []muster.Worker {
	gpu := func(i int, q string) muster.GPU {
		return muster.GPU{UUID: fmt.Sprintf("GPU-%d", i), Index: i, Vendor: "nvidia", Name: "NVIDIA H100 80GB", Memory: 80 << 30, Quarantined: q}
	}
	return []muster.Worker{
		{ID: "w-1", Name: "rig-1", State: muster.WorkerActive, Version: "1.4.0", Tags: []string{"linux", "gpu"}, Price: 2.5, Running: 7, LastSeenAt: ago(2 * time.Second),
			Resources: muster.Resources{CPUs: 64, Memory: 512 << 30, Disk: 1 << 40, Slots: 8, GPUs: []muster.GPU{gpu(0, ""), gpu(1, "2 uncorrected ECC errors")}},
			Free:      &muster.Resources{CPUs: 12, Memory: 100 << 30, Disk: 500 << 30, Slots: 1},
			Load:      &muster.Load{CPU: 0.81, Memory: 300 << 30, GPUs: []muster.GPULoad{{UUID: "GPU-0", Utilization: new(0.97), Memory: new(muster.Size(71 << 30)), Temperature: new(74.0), Power: new(612.0)}}}},
		{ID: "w-2", Name: "a-worker-with-a-very-long-name-in-rack-42", State: muster.WorkerDraining, Running: 1, LastSeenAt: ago(4 * time.Second), Resources: muster.Resources{CPUs: 8, Memory: 32 << 30}},
		{ID: "w-3", Name: "rig-7", State: muster.WorkerUnreachable, LastSeenAt: ago(4 * time.Minute), Resources: muster.Resources{CPUs: 8, Memory: 32 << 30}},
	}
}

// fill puts data into the tabs as reads do.
func fill(m *model) {
	read := func(r *pacer) { r.loaded, r.lastRead = true, noon }
	for _, p := range m.tabs {
		switch p := p.(type) {
		case *jobsPage:
			read(&p.pacer)
			p.rows = testJobs()
			p.arrange()
		case *tasksPage:
			read(&p.pacer)
			p.rows = testTasks()
			p.arrange()
		case *workersPage:
			read(&p.pacer)
			p.all = testWorkers()
			p.arrange()
		case *gpusPage:
			read(&p.pacer)
			p.all = []wire.OverviewGPU{
				{Worker: "w-1", WorkerName: "rig-1", UUID: "GPU-0", Name: "NVIDIA H100 80GB", Utilization: new(0.97), MemoryUsed: new(muster.Size(71 << 30)), Memory: 80 << 30, Temperature: new(74.0), Power: new(612.0), Tasks: 1},
				{Worker: "w-1", WorkerName: "rig-1", Index: 1, UUID: "GPU-1", Name: "NVIDIA H100 80GB", Memory: 80 << 30, Quarantined: "2 uncorrected ECC errors"},
			}
			p.arrange()
		}
	}
}

func openJob(m *model) *jobPage {
	p := newJob(testJobs()[1])
	p.jobPacer.loaded, p.tasksPacer.loaded = true, true
	p.rows = testTasks()
	m.stack = append(m.stack, p)
	return p
}

func openTask(m *model, t muster.Task) *taskPage {
	p := newTask(m, &t)
	p.taskPacer.loaded = true
	for i := range 40 {
		p.points = append(p.points, muster.Point{At: ago(time.Duration(40-i) * time.Second), Metrics: map[string]float64{"loss": 1 / float64(i+1)}})
	}
	for i := range 30 {
		p.series.Samples = append(p.series.Samples, muster.Sample{At: ago(time.Duration(60-i) * time.Second), CPU: new(float64(i % 5)), Memory: new(muster.Size(i) << 28)})
	}
	p.series.Attempt, p.series.Taken, p.series.State = 2, 30, t.State
	fillLog(p.log, outputs()...)
	m.stack = append(m.stack, p)
	return p
}

// outputs are the lines of a task, the last two of stderr.
func outputs() []string {
	lines := []string{"loading data\n"}
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("\x1b[32mstep %d\x1b[0m loss=%.3f\n", i, 1/float64(i+1)))
	}
	return append(lines, "10%\r50%\r100% done\n", "Warning: a line that is wider than most terminals are, so that it has to be cut or wrapped at the edge of the screen\n")
}

// fillLog gives a page the log of a task as the server has it.
func fillLog(p *logPage, lines ...string) {
	p.loaded, p.pendingOffset = true, offsetNone
	w := newWindow(0, lines...)
	for i := max(0, len(w.Records)-2); i < len(w.Records); i++ {
		w.Records[i].Stream = client.Stderr
	}
	p.addWindow(&w, false)
}

// openLog shows the log of a task as the server has it.
func openLog(m *model, lines ...string) *logPage {
	p := newLog(testTasks()[0].ID)
	fillLog(p, lines...)
	m.stack = append(m.stack, p)
	return p
}

// newWindow is a window of a log whose records are lines from an offset on, and which ends with them.
func newWindow(first int64, lines ...string) wire.LogWindow {
	w := wire.LogWindow{Attempt: 1, First: first, Last: first, Records: []wire.LogRecord{}}
	for _, l := range lines {
		w.Records = append(w.Records, wire.LogRecord{Offset: w.Last, LogLine: wire.NewLogLine(client.Stdout, ago(time.Second), []byte(l))})
		w.Last += int64(len(l)) + 16
	}
	w.Size = w.Last
	return w
}

func TestFrames(t *testing.T) {
	screens := map[string]func(m *model){
		"jobs":        func(*model) {},
		"jobs-sorted": func(m *model) { pressKeys(m, "s", "s", "S") },
		"tasks":       func(m *model) { m.tab = 1 },
		"workers":     func(m *model) { m.tab = 2 },
		"gpus":        func(m *model) { m.tab = 3 },
		"job":         func(m *model) { openJob(m) },
		"task":        func(m *model) { openTask(m, testTasks()[0]) },
		"task-waits": func(m *model) {
			p := openTask(m, testTasks()[3])
			p.explanation = muster.Explanation{Summary: "waits for room: 9 workers could run it, but all are busy", Nearest: "resume worker rig-3, which is paused", Position: 12, Ahead: 11}
			p.t.Metrics, p.series.Samples = nil, nil
			p.log.segment = logSegment{}
		},
		"task-failed": func(m *model) { openTask(m, testTasks()[1]) },
		"log":         func(m *model) { openLog(m, outputs()...) },
		"log-long": func(m *model) {
			p := openLog(m, outputs()...)
			p.segment.first, p.segment.size, p.segment.end, p.segment.attempt, p.paused, p.serverSearch = 900<<20, 1<<30, false, 2, true, &serverSearch{}
			p.segment.last += 900 << 20
			for i := range p.segment.lines {
				p.segment.lines[i].seq += 900 << 20
			}
		},
		"log-search": func(m *model) {
			openLog(m, outputs()...)
			m.lines()
			pressKeys(m, "w", "/", "step 9", "enter", "n")
		},
		"worker": func(m *model) {
			p := newWorker("w-1", "rig-1")
			p.loaded, p.w, p.rows = true, testWorkers()[0], testTasks()[:2]
			m.stack = append(m.stack, p)
		},
		"help":     func(m *model) { pressKeys(m, "?") },
		"question": func(m *model) { pressKeys(m, "c") },
		"prompt":   func(m *model) { pressKeys(m, "/", "fine") },
		"error":    func(m *model) { pressKeys(m, "j", "j", "j", "c") },
		"lost": func(m *model) {
			m.loss = live.Loss{Err: errors.New("connection refused"), RetryAt: noon.Add(2500 * time.Millisecond)}
		},
		"empty": func(m *model) {
			m.tabs = [...]page{newJobs(), newTasks(), newWorkers(), newGPUs()}
			p, _ := m.tabs[0].(*jobsPage)
			p.loaded, p.lastRead = true, noon
			m.head.fleet = &wire.Overview{}
		},
	}
	for name, show := range screens {
		for _, look := range []struct {
			suffix        string
			width, height int
			color         bool
		}{{"80x24", 80, 24, false}, {"80x24-color", 80, 24, true}, {"60x15", 60, 15, false}, {"120x40", 120, 40, false}} {
			t.Run(name+"-"+look.suffix, func(t *testing.T) {
				m := staticModel(t, look.width, look.height, look.color)
				show(m)
				m.lines() // pages learn their height
				lines := m.lines()
				checkFits(t, lines, look.width, look.height)
				for i, l := range lines {
					lines[i] = strings.TrimRight(strings.ReplaceAll(l, "\x1b", "␛"), " ")
				}
				compare(t, filepath.Join("testdata", name+"-"+look.suffix+".golden"), strings.Join(lines, "\n")+"\n")
			})
		}
	}
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the frame changed (-want +got); if that is right, run with -update:\n%s", diff)
	}
}

// checkFits checks that a frame has as many lines as the screen, and none that is wider.
func checkFits(t interface{ Errorf(string, ...any) }, lines []string, width, height int) {
	if len(lines) != height {
		t.Errorf("the frame has %d lines, the screen %d", len(lines), height)
	}
	for _, l := range lines {
		if w := ansi.StringWidth(l); w > width {
			t.Errorf("a line takes %d columns of %d: %q", w, width, l)
		}
	}
}

// pressKeys types keys, and texts into a prompt.
func pressKeys(m *model, keys ...string) {
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "pgdown": tea.KeyPgDown, "end": tea.KeyEnd, "home": tea.KeyHome, "tab": tea.KeyTab}
	for _, k := range keys {
		if code, ok := named[k]; ok {
			m.Update(tea.KeyPressMsg{Code: code})
			continue
		}
		for _, r := range k {
			m.Update(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

// The cursor stays on the device of its worker if another worker of the same machine lists the device, too.
func TestOneDeviceOfTwoWorkers(t *testing.T) {
	m := staticModel(t, 80, 24, false)
	p, _ := m.tabs[3].(*gpusPage)
	p.all = []wire.OverviewGPU{{Worker: "w-1", WorkerName: "rig-1", UUID: "GPU-0"}, {Worker: "w-2", WorkerName: "rig-2", UUID: "GPU-0"}}
	p.arrange()
	pressKeys(m, "4", "j")
	p.arrange() // as after each read
	if g := p.selected(); g == nil || g.Worker != "w-2" {
		t.Errorf("the cursor is on %+v, want the device of w-2", g)
	}
}

// Whatever the size of the terminal, the names and the keys: no frame is larger than the terminal, and nothing panics.
func TestFramesFit(t *testing.T) {
	keys := []string{"1", "2", "3", "4", "j", "k", "down", "up", "pgdown", "end", "home", "s", "S", "?", "/", "x", "esc", "a", "tab", "G", "g", "n", "w", "t", "f"}
	rapid.Check(t, func(rt *rapid.T) {
		m := staticModel(t, rapid.IntRange(minWidth, 200).Draw(rt, "width"), rapid.IntRange(minHeight, 70).Draw(rt, "height"), rapid.Bool().Draw(rt, "color"))
		name := rapid.StringN(0, 60, 200).Draw(rt, "name")
		for i := range rapid.IntRange(0, 100).Draw(rt, "jobs") {
			j := testJobs()[i%5]
			j.ID, j.Name = muster.JobID(10_000_000+i), name
			p, _ := m.tabs[0].(*jobsPage)
			p.rows = append(p.rows, j)
		}
		switch rapid.IntRange(0, 4).Draw(rt, "page") {
		case 0:
			p := openJob(m)
			p.job.Name, p.rows[0].Name, p.rows[0].Message = name, name, name
		case 1:
			p := openTask(m, testTasks()[rapid.IntRange(0, 3).Draw(rt, "task")])
			p.t.Name, p.t.Step, p.t.Message = name, name, name
			w := newWindow(p.log.segment.last, name+"\n")
			p.log.addWindow(&w, false)
		case 2:
			openLog(m, name+"\n")
		case 3:
			p := newWorker("w-1", name)
			p.loaded, p.w, p.rows = true, testWorkers()[0], testTasks()
			p.w.Name = name
			m.stack = append(m.stack, p)
		}
		checkFits(rt, m.lines(), m.width, m.height)
		for range rapid.IntRange(0, 20).Draw(rt, "keys") {
			pressKeys(m, rapid.SampledFrom(keys).Draw(rt, "key"))
			checkFits(rt, m.lines(), m.width, m.height)
		}
	})
}

// TestFramesHaveOnlyText draws a worker whose id and version, which no page expects, would act on the terminal.
func TestFramesHaveOnlyText(t *testing.T) {
	m := staticModel(t, 80, 24, true)
	m.screen.Terminal = true
	const hostile = "w\x1b]0;X\x07\x1b[2J\u009b\u202e\r\nmuster: done"
	m.role = hostile
	p := newWorker(hostile, hostile)
	p.loaded, p.w = true, muster.Worker{ID: hostile, Name: hostile, Version: hostile, State: hostile}
	m.stack = append(m.stack, p)
	lines := strings.Split(m.View().Content, "\n")
	if len(lines) != m.height {
		t.Errorf("the frame has %d lines, the screen %d", len(lines), m.height)
	}
	for _, l := range lines {
		if i := strings.IndexFunc(l, term.Unsafe); i >= 0 {
			t.Errorf("%q is not text", l)
		}
	}
}
