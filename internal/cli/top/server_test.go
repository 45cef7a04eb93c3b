//go:build unix

package top

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/live"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// screen runs the program without a terminal and shows its frames to a test.
type screen struct {
	*model

	t       *testing.T
	program *tea.Program

	mu    sync.Mutex
	frame string
}

// View implements tea.Model.
func (s *screen) View() tea.View {
	v := s.model.View()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frame = ansi.Strip(v.Content)
	return v
}

// Update implements tea.Model.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	_, cmd := s.model.Update(msg)
	return s, cmd
}

// startTop starts muster top against a cluster.
func startTop(t *testing.T, c *mustertest.Cluster) *screen {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	group, ctx := errgroup.WithContext(ctx)
	api, err := client.New("http://"+c.Addr, mustertest.AdminToken, client.Options{Timeout: 15 * time.Second, RetryTimeout: time.Nanosecond, StreamRetryTimeout: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(ctx, group, api, term.Screen{})
	m.feed = live.New(api, client.EventQuery{Types: []muster.EventType{muster.EventJob, muster.EventWorker}})
	group.Go(func() error { return m.feed.Run(ctx) })
	s := &screen{model: m, t: t}
	s.program = tea.NewProgram(s, tea.WithContext(ctx), tea.WithInput(nil), tea.WithOutput(new(strings.Builder)), tea.WithWindowSize(100, 30), tea.WithoutSignals())
	ended := make(chan error, 1)
	go func() {
		_, err := s.program.Run()
		ended <- err
	}()
	t.Cleanup(func() {
		s.program.Quit()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		stop()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// keys types.
func (s *screen) keys(keys ...string) {
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "end": tea.KeyEnd, "pgdown": tea.KeyPgDown}
	for _, k := range keys {
		if code, ok := named[k]; ok {
			s.program.Send(tea.KeyPressMsg{Code: code})
			continue
		}
		for _, r := range k {
			s.program.Send(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

// inspect shows the model to a function, once what was typed before has been done.
func (s *screen) inspect(fn func(m *model)) {
	done := make(chan struct{})
	s.program.Send(updateFunc(func(m *model) tea.Cmd {
		defer close(done)
		fn(m)
		return nil
	}))
	<-done
}

// waitFor waits until a frame has all of the texts.
func (s *screen) waitFor(texts ...string) {
	s.t.Helper()
	var frame string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		frame = s.frame
		s.mu.Unlock()
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(frame, text)
		}
		if !missing {
			return
		}
	}
	s.t.Fatalf("the screen does not show %q:\n%s", texts, frame)
}

// A user watches a job, opens it, follows the log of its task, cancels it, and drains the worker; the connection to the server is lost and
// restored.
func TestSession(t *testing.T) {
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("rig", t.TempDir(), "--slots", "2")
	s := startTop(t, c)
	s.waitFor("no jobs: submit one", "live", "Workers 1")

	sleeper := c.Submit(&muster.Spec{Name: "sleeper", Tasks: []muster.TaskSpec{{
		Kind: muster.KindProcess, Run: &muster.Command{Shell: `echo first line; echo '::muster progress=0.42 step="epoch 3/7" loss=0.25'; for i in $(seq 1 600); do echo "tick $i"; sleep 0.1; done`},
	}}})
	s.waitFor("sleeper", "running", "0/1")
	s.keys("enter")
	s.waitFor("job "+sleeper.ID.String(), "42%", "epoch 3/7", "rig")
	s.keys("enter")
	s.waitFor("progress", "loss", "0.25", "tick 3", "── log")
	s.keys("l")
	s.waitFor("tick 20", "following")
	s.keys("/", "first", "enter")
	s.waitFor("first line", "paused: f follows")
	s.keys("G")
	s.waitFor("following")
	s.keys("esc", "esc")
	s.waitFor("progress")
	s.keys("c")
	s.waitFor("Cancel task "+sleeper.ID.String()+".0 (", "[y/n]")
	s.keys("n")
	s.waitFor("aborted")
	s.keys("c", "y")
	s.waitFor("cancelled")
	if job := c.Wait(sleeper.ID, time.Minute); job.State != muster.JobCancelled {
		t.Errorf("the job is %s, want cancelled", job.State)
	}
	s.keys("c")
	s.waitFor("error: task " + sleeper.ID.String() + ".0 is already cancelled")
	s.keys("esc", "esc")
	s.waitFor("sleeper", "cancelled", "1 Jobs  2 Tasks")

	// The server goes away and comes back.
	c.Server.Kill()
	s.waitFor("disconnected, retrying in")
	c.StartServer()
	s.waitFor("live")
	array := c.Submit(&muster.Spec{Name: "many", Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: 499}}}}}})
	s.waitFor("many", "500/500")
	s.keys("g", "enter")
	s.waitFor("job "+array.ID.String(), array.ID.String()+".0 ")
	s.keys("end")
	s.waitFor(array.ID.String()+".499 ", "succeeded")
	s.keys("/", "failed", "enter")
	s.waitFor("no matches")
	s.keys("esc", "/", "490-491", "enter")
	s.waitFor(array.ID.String()+".490 ", array.ID.String()+".491 ")
	s.keys("/", "x", "enter")
	s.waitFor("invalid filter")

	s.keys("3")
	s.waitFor("rig", "active")
	s.keys("p")
	s.waitFor("paused")
	s.keys("u")
	s.waitFor("resumed", "active")
	s.keys("d")
	s.waitFor("Drain worker rig?")
	s.keys("y")
	s.waitFor("no workers: start one")
}

// A long log is opened at its end, scrolled and searched without reading all of it.
func TestLongLog(t *testing.T) {
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("rig", t.TempDir())
	s := startTop(t, c)
	job := c.Submit(mustertest.ShellSpec("long", "seq 1 1000000; echo the last line"))
	if end := c.Wait(job.ID, 2*time.Minute); end.State != muster.JobSucceeded {
		t.Fatalf("the job ended as %s", end.State)
	}
	s.waitFor("long", "succeeded")
	s.keys("enter")
	s.waitFor("job "+job.ID.String(), "rig") // the row of the task has been read
	s.keys("l")
	s.waitFor("\n1000000\nthe last line\n", "end of the log", "the end of ")
	s.keys("g")
	s.waitFor("\n1\n2\n3\n", "paused")
	s.keys("/", "500000", "enter")
	s.waitFor("\n499999\n500000\n500001\n", "paused")
	s.keys("esc", "/", "499999", "enter", "N")
	s.waitFor("\n499998\n499999\n500000\n")
	s.keys("esc", "/", "the LAST", "enter")
	s.waitFor(`no line has "the LAST"`)
	s.keys("esc", "/", "the last", "enter")
	s.waitFor("\n1000000\nthe last line\n")
	s.keys("n")
	s.waitFor("search continues from the other end")
	s.keys("esc", "G", "/", "277777", "enter")
	s.waitFor("\n277776\n277777\n277778\n", "paused")
	s.keys("g")
	s.waitFor("\n1\n2\n3\n")
	for deadline := time.Now().Add(time.Minute); ; { // beyond what is kept
		for range 100 {
			s.keys("pgdown")
		}
		first := int64(0)
		s.inspect(func(m *model) {
			p, ok := m.current().(*logPage)
			if !ok {
				t.Error("the log is not shown")
				return
			}
			first = p.segment.first
			for i := range len(p.segment.lines) - 1 {
				if a, b := number(p.segment.lines[i].text), number(p.segment.lines[i+1].text); b != a+1 {
					t.Errorf("%d follows %d", b, a)
					return
				}
			}
			if p.segment.bytes > maxSegmentBytes {
				t.Errorf("%d bytes are kept", p.segment.bytes)
			}
		})
		if first > 0 || t.Failed() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the log cannot be scrolled down")
		}
	}
	s.keys("G")
	s.waitFor("\n1000000\nthe last line\n", "end of the log")
}

func number(text string) int {
	n, _ := strconv.Atoi(text) // 0 for others
	return n
}

// The next attempt of a task follows the one before.
func TestLogOfTheNextAttempt(t *testing.T) {
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("rig", t.TempDir())
	s := startTop(t, c)
	spec := mustertest.ShellSpec("flaky", `echo "this is attempt $MUSTER_ATTEMPT"; sleep 3; test "$MUSTER_ATTEMPT" = 2`)
	spec.Tasks[0].Retries = muster.Retries{Max: 1}
	job := c.Submit(spec)
	s.waitFor("flaky", "running")
	s.keys("enter")
	s.waitFor(job.ID.String()+".0 ", "rig") // the row of the task has been read
	s.keys("l")
	s.waitFor("log "+job.ID.String()+".0", "this is attempt 1", "following")
	s.waitFor("this is attempt 2", "attempt 2  following")
	s.waitFor("end of the log")
	s.keys("f")
	s.waitFor("this is attempt 2", "end of the log")
}
