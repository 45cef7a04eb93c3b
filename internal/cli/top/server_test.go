//go:build unix

package top

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/live"
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

// show starts muster top against a cluster.
func show(t *testing.T, c *mustertest.Cluster) *screen {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	group, ctx := errgroup.WithContext(ctx)
	api, err := client.New("http://"+c.Addr, mustertest.AdminToken, client.Options{Timeout: 15 * time.Second, Patience: time.Nanosecond, StreamPatience: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(ctx, group, api, c.Client, false)
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
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "end": tea.KeyEnd}
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

// sees waits until a frame has all of the texts.
func (s *screen) sees(texts ...string) {
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

// A user watches a job, opens it, follows the log of its task, cancels it, and drains the worker; the connection to the server is lost
// and comes back.
func TestAWholeSession(t *testing.T) {
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("rig", t.TempDir(), "--slots", "2")
	s := show(t, c)
	s.sees("no jobs: submit one", "live", "Workers 1")

	sleeper := c.Submit(&muster.Spec{Name: "sleeper", Tasks: []muster.TaskSpec{{
		Kind: muster.KindProcess, Run: &muster.Command{Shell: `echo first line; echo '::muster progress=0.42 step="epoch 3/7" loss=0.25'; for i in $(seq 1 600); do echo "tick $i"; sleep 0.1; done`},
	}}})
	s.sees("sleeper", "running", "0/1")
	s.keys("enter")
	s.sees("job "+sleeper.ID.String(), "42%", "epoch 3/7", "rig")
	s.keys("enter")
	s.sees("progress", "loss", "0.25", "tick 3", "── log")
	s.keys("l")
	s.sees("tick 20", "following")
	s.keys("/", "first", "enter")
	s.sees("first line", "paused: f follows")
	s.keys("G")
	s.sees("following")
	s.keys("esc", "esc")
	s.sees("progress")
	s.keys("c")
	s.sees("Cancel task "+sleeper.ID.String()+".0 (", "[y/n]")
	s.keys("n")
	s.sees("nothing was done")
	s.keys("c", "y")
	s.sees("cancelled")
	if job := c.Wait(sleeper.ID, time.Minute); job.State != muster.JobCancelled {
		t.Errorf("the job is %s, want cancelled", job.State)
	}
	s.keys("c")
	s.sees("error: task " + sleeper.ID.String() + ".0 is already cancelled")
	s.keys("esc", "esc")
	s.sees("sleeper", "cancelled", "1 Jobs  2 Tasks")

	// The server goes away and comes back.
	c.Server.Kill()
	s.sees("disconnected, retrying in")
	c.StartServer()
	s.sees("live")
	array := c.Submit(&muster.Spec{Name: "many", Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: 499}}}}}})
	s.sees("many", "500/500")
	s.keys("g", "enter")
	s.sees("job "+array.ID.String(), array.ID.String()+".0 ")
	s.keys("end")
	s.sees(array.ID.String()+".499 ", "succeeded")
	s.keys("/", "failed", "enter")
	s.sees("nothing matches")
	s.keys("esc", "/", "490-491", "enter")
	s.sees(array.ID.String()+".490 ", array.ID.String()+".491 ")
	s.keys("/", "x", "enter")
	s.sees(`is not a state or a number`)

	s.keys("3")
	s.sees("rig", "active")
	s.keys("p")
	s.sees("worker rig: paused", "paused")
	s.keys("u")
	s.sees("worker rig: takes tasks again", "active")
	s.keys("d")
	s.sees("Drain worker rig?")
	s.keys("y")
	s.sees("no workers: start one")
}
