package proctree

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
)

// children returns a list of children as the kernel does: a page at a time, and the next one by counting the children that exist then.
type children struct {
	pids []int
	at   int         // how many were returned
	page int         // children per page
	then func(c int) // called after each page with its number
	n    int
}

func (c *children) Read(b []byte) (int, error) {
	var list strings.Builder
	for i := c.at; i < min(c.at+c.page, len(c.pids)); i++ {
		fmt.Fprintf(&list, "%d ", c.pids[i])
	}
	c.at = min(c.at+c.page, len(c.pids))
	c.n++
	if c.then != nil {
		c.then(c.n)
	}
	return copy(b, list.String()), nil
}

func (c *children) Seek(int64, int) (int64, error) {
	c.at = 0
	return 0, nil
}

func count(from, n int) (pids []int) {
	for i := range n {
		pids = append(pids, from+i)
	}
	return pids
}

// A list of several pages is complete, even if children are reaped during the read.
func TestAllChildrenAreListed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		n      int
		reaped []int // pages after which the first child is reaped
		err    error
	}{
		"none":              {n: 0},
		"one page":          {n: 500},
		"several":           {n: 3000},
		"reaped meanwhile":  {n: 3000, reaped: []int{1, 3, 9}},
		"reaped all along":  {n: 3000, reaped: count(1, 1000), err: errChanging},
		"reaped at the end": {n: 3000, reaped: []int{6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &children{pids: count(1000, tc.n), page: 500}
			c.then = func(page int) {
				if slices.Contains(tc.reaped, page) {
					c.pids = c.pids[1:]
				}
			}
			got, err := readChildren(c, true)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%v", err)
			}
			if err == nil && !slices.Equal(got, c.pids) && !slices.Equal(got[1:], c.pids) { // reaped after it was listed
				t.Errorf("%d of %d children are listed", len(got), len(c.pids))
			}
		})
	}
	if _, err := readChildren(broken{}, true); err == nil {
		t.Error("no error for an unreadable file")
	}
}

type broken struct{ io.Seeker }

func (broken) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// With many other children the kernel's list is read completely, and has the leftover processes of a task.
func TestLongListOfChildren(t *testing.T) {
	k := New(slog.New(slog.DiscardHandler))
	const others = 900
	many, expected := fork(t, k, "MUSTER_OUT="+t.TempDir(), fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 1000 & i=$((i+1)); done", others))
	if !ends(many) {
		t.Fatal("the task does not end")
	}
	if pids, err := mainThreadChildren(k.self, true); err != nil || len(pids) < others {
		t.Errorf("%d children are listed: %v", len(pids), err)
	}
	cmd, p := fork(t, k, "MUSTER_OUT="+t.TempDir(), "setsid sleep 1000 & exit 0")
	if !ends(cmd) {
		t.Fatal("the task does not end")
	}
	for _, p := range []run.Pid{p, expected} {
		if left := k.Cleanup(p, testTimeout); left != 0 || Alive(run.Pid{BootID: k.bootID, EnvTag: p.EnvTag}) {
			t.Errorf("%d processes remain", left)
		}
	}
}

// Many tasks that are killed at once share the readings of all processes.
func TestKillsShareAScan(t *testing.T) {
	k := New(slog.New(slog.DiscardHandler))
	const tasks = 100
	var cmds []*exec.Cmd
	var pids []run.Pid
	for range tasks {
		cmd, p := fork(t, k, "MUSTER_OUT="+t.TempDir(), "trap '' TERM; setsid sleep 1000 & sleep 1000 & wait")
		cmds, pids = append(cmds, cmd), append(pids, p)
	}
	k.procs.loading.Lock() // one is in progress when all of them call
	var wg sync.WaitGroup
	for _, p := range pids {
		wg.Go(func() { k.Kill(p) })
	}
	for waiting := false; !waiting; {
		k.procs.mu.Lock()
		waiting = k.procs.next != nil
		k.procs.mu.Unlock()
	}
	k.procs.loading.Unlock()
	wg.Wait()
	if n := k.procs.loads; n > tasks/10 {
		t.Errorf("%d tasks took %d readings of all processes", tasks, n)
	}
	for i, cmd := range cmds {
		if !ends(cmd) {
			t.Fatalf("task %d still runs", i)
		}
		if left := k.Cleanup(pids[i], testTimeout); left != 0 {
			t.Errorf("%d processes of task %d remain", left, i)
		}
	}
}

// One of the next sweeps ends a process that escaped from the control groups of an attempt.
func TestSweepKillsEscapedProcesses(t *testing.T) {
	k := New(slog.New(slog.DiscardHandler))
	envTag := "MUSTER_OUT=" + t.TempDir()
	other, running := fork(t, k, "MUSTER_OUT="+t.TempDir(), "exec sleep 1000")
	cmd, p := fork(t, k, envTag, "setsid sleep 1000 & exit 0")
	if !ends(cmd) {
		t.Fatal("the task does not end")
	}
	k.CleanupLater(p)
	for deadline := time.Now().Add(testTimeout); Alive(run.Pid{BootID: k.bootID, EnvTag: envTag}); k.Sweep() {
		if time.Now().After(deadline) {
			t.Fatal("the leftover process survives")
		}
	}
	k.Sweep()
	k.Sweep()
	if st, ok := procfs.ReadStat(running.PID); !ok || st.State == 'Z' {
		t.Errorf("another task was killed: %c", st.State)
	}
	k.Kill(running)
	if !ends(other) || k.Cleanup(running, testTimeout) != 0 {
		t.Error("the other task survives")
	}
	if n := len(k.deferred[0]) + len(k.deferred[1]); n != 0 {
		t.Errorf("%d attempts are still deferred", n)
	}
}
