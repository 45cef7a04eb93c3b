//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent/isolation/cgroup"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link/linktest"
	"github.com/muster-dev/muster/internal/mustertest"
)

const slots = 6 // of each worker

// cluster is the program under test: a server, and workers behind proxies.
type cluster struct {
	t       *testing.T
	dir     string // of the run
	effects string // where tasks append to files
	addr    string
	disks   bool // the data folders are small file systems of their own
	server  *process
	workers []*process
	nets    []*linktest.Proxy // of the workers
	userNet *linktest.Proxy   // of half of the clients

	mu    sync.Mutex
	exits []string        // processes that ended unexpectedly, or did not end on a signal
	full  map[string]bool // data folders whose disk is full
}

// newCluster creates the folders, disks, proxies and processes of a run. All of them are removed when the test ends.
func newCluster(t *testing.T, dir string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: dir, effects: filepath.Join(dir, "effects"), addr: mustertest.ReservePort(t), full: map[string]bool{}, disks: os.Geteuid() == 0}
	// Tasks may run as another user: they come through here, and write there.
	for path, mode := range map[string]fs.FileMode{dir: 0o755, c.effects: 0o777, filepath.Join(dir, "logs"): 0o755} {
		if err := errors.Join(os.MkdirAll(path, mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	c.server = c.add("server", []string{"MUSTER_ADMIN_TOKEN=" + mustertest.AdminToken, "MUSTER_JOIN_TOKEN=" + mustertest.JoinToken},
		"server", "--listen", c.addr, "--heartbeat", "1s", "-o", "json")
	c.userNet = linktest.NewProxy(t, c.addr)
	for i := range workers {
		net := linktest.NewProxy(t, c.addr)
		name := fmt.Sprintf("worker%d", i)
		c.nets = append(c.nets, net)
		c.workers = append(c.workers, c.add(name, []string{"MUSTER_JOIN_TOKEN=" + mustertest.JoinToken},
			"worker", "--server", "http://"+net.Addr, "--name", name, "--slots", strconv.Itoa(slots), "--shutdown-grace", "2s", "--engine", "none", "--cool-down", "3s", "--allow-write", c.effects))
	}
	return c
}

// add creates a process with its own data folder, on its own disk if possible.
func (c *cluster) add(name string, env []string, args ...string) *process {
	p := &process{c: c, name: name, data: filepath.Join(c.dir, name), env: env, args: append(args, "--data", filepath.Join(c.dir, name)), quit: make(chan struct{})}
	if err := os.MkdirAll(p.data, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if c.disks {
		if err := syscall.Mount("tmpfs", p.data, "tmpfs", 0, "size="+largeDisk+",mode=755"); err != nil {
			c.t.Logf("disk faults are left out: no file system can be mounted: %v", err)
			c.disks = false
		} else {
			c.t.Cleanup(func() { _ = syscall.Unmount(p.data, syscall.MNT_DETACH) })
		}
	}
	c.t.Cleanup(p.shutdown)
	return p
}

// largeDisk is the size of a disk with much space: only what is used takes memory.
const largeDisk = "16g"

// setDiskFull fills the disk of a process, or frees space again.
func (c *cluster) setDiskFull(p *process, on bool) error {
	if !c.disks {
		return errors.New("it has no disk of its own")
	}
	c.mu.Lock()
	c.full[p.data] = c.full[p.data] || on
	c.mu.Unlock()
	size := largeDisk
	for try := 0; ; try++ {
		if on {
			var st syscall.Statfs_t
			if err := syscall.Statfs(p.data, &st); err != nil {
				return err
			}
			used := int64(st.Blocks-st.Bfree) * st.Bsize
			size = strconv.FormatInt(max(used, st.Bsize), 10)
		}
		err := syscall.Mount("tmpfs", p.data, "tmpfs", syscall.MS_REMOUNT, "size="+size)
		if err == nil || try == 20 {
			if !on {
				time.AfterFunc(10*time.Second, func() { c.mu.Lock(); delete(c.full, p.data); c.mu.Unlock() })
			}
			return err // more was written meanwhile
		}
	}
}

func (c *cluster) recordExit(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := clock(time.Now().UnixNano()) + " " + fmt.Sprintf(format, args...)
	c.exits = append(c.exits, text)
	c.t.Log(text)
}

// client makes a client, behind the faulty network or not.
func (c *cluster) client(retryTimeout time.Duration, faulty bool) *client.Client {
	addr := c.addr
	if faulty {
		addr = c.userNet.Addr
	}
	cl, err := client.New("http://"+addr, mustertest.AdminToken, client.Options{RetryTimeout: retryTimeout, Timeout: 15 * time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	return cl
}

// process is one process of the program, which is started again whenever it ends while it is wanted.
type process struct {
	c    *cluster
	name string
	data string
	env  []string
	args []string

	mu           sync.Mutex
	cmd          *exec.Cmd
	done         chan struct{} // closed when cmd has ended
	keepRunning  bool
	exitExpected bool // its end is no surprise
	drained      bool // it was asked to leave, and that was not taken back
	quit         chan struct{}
	loop         sync.WaitGroup
	starts       int
}

// start makes the process wanted, and starts it.
func (p *process) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keepRunning {
		return
	}
	p.keepRunning = true
	if p.cmd == nil {
		p.launch()
	}
}

// launch starts a process. The lock is held.
func (p *process) launch() {
	p.exitExpected = false
	p.starts++
	cmd := exec.Command(mustertest.Program(p.c.t), p.args...)
	cmd.Env = append(append(os.Environ(), "MUSTER_CONFIG="+filepath.Join(p.c.dir, "context-"+p.name+".json")), p.env...)
	log, err := os.OpenFile(filepath.Join(p.c.dir, "logs", p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.c.recordExit("%s has no log: %v", p.name, err)
		return
	}
	fmt.Fprintf(log, "=== %s life %d of %s\n", clock(time.Now().UnixNano()), p.starts, p.name)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		log.Close()
		p.c.recordExit("%s does not start: %v", p.name, err)
		return
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	p.loop.Go(func() {
		err := cmd.Wait()
		log.Close()
		p.mu.Lock()
		expected := p.exitExpected || p.drained
		p.cmd = nil
		close(done)
		p.mu.Unlock()
		if !expected && !p.c.isFull(p.data) {
			p.c.recordExit("%s ended by itself: %v", p.name, err)
		}
		select { // as an init system would
		case <-p.quit:
			return
		case <-time.After(200 * time.Millisecond):
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.keepRunning && p.cmd == nil {
			p.launch()
		}
	})
}

func (c *cluster) isFull(data string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full[data]
}

// signal sends a signal to the process, if it lives. If it is to end by it, it is not wanted any more.
func (p *process) signal(sig syscall.Signal, final bool) (done <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if final {
		p.keepRunning, p.exitExpected = false, true
	}
	if p.cmd == nil {
		exited := make(chan struct{})
		close(exited)
		return exited
	}
	_ = p.cmd.Process.Signal(sig) // it may just have ended
	return p.done
}

// kill is kill -9.
func (p *process) kill() {
	<-p.signal(syscall.SIGKILL, true)
}

// stop tells the process to end in order, and waits for that. It ends as well if it was stopped meanwhile.
func (p *process) stop(limit time.Duration) {
	done := p.signal(syscall.SIGTERM, true)
	select {
	case <-done:
	case <-time.After(limit):
		p.c.recordExit("%s did not end within %s of SIGTERM", p.name, limit)
		p.signal(syscall.SIGQUIT, true) // it prints its stacks
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			p.kill()
		}
	}
}

// shutdown kills the process for good, with all that a worker leaves.
func (p *process) shutdown() {
	p.signal(syscall.SIGCONT, false)
	p.mu.Lock()
	select {
	case <-p.quit:
	default:
		close(p.quit)
	}
	p.mu.Unlock()
	p.kill()
	p.loop.Wait()
	p.sweep()
}

// sweep removes the leftovers of a worker's process.
func (p *process) sweep() {
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		pids := p.leftoverPIDs()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may just have ended
		}
		busy := false
		for _, g := range cgroup.WorkerGroups(p.data) {
			busy = g.Own && g.Remove() != nil || busy
		}
		if len(pids) == 0 && !busy {
			return
		}
	}
}

// shims returns the supervisors of a worker.
func (p *process) shims() []int { return mustertest.ShimPIDs(p.c.t, p.data) }

// leftoverPIDs returns the processes of a worker's tasks, and its supervisors.
func (p *process) leftoverPIDs() []int {
	return append(p.shims(), mustertest.TaskPIDs(p.c.t, p.data)...)
}

// leftovers describes the leftovers of a worker that has ended, after waiting for their removal.
func (p *process) leftovers(limit time.Duration) []string {
	var found []string
	for until := time.Now().Add(limit); ; time.Sleep(200 * time.Millisecond) {
		found = nil
		for _, pid := range p.leftoverPIDs() {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil {
				found = append(found, fmt.Sprintf("%s: process %d: %q", p.name, pid, line))
			}
		}
		for _, g := range cgroup.WorkerGroups(p.data) {
			if g.Own {
				found = append(found, fmt.Sprintf("%s: control group %s with %d processes", p.name, g.Path, g.Processes))
			}
		}
		for _, sub := range []string{"tasks", "logs"} {
			entries, _ := os.ReadDir(filepath.Join(p.data, sub)) // it may not be there
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), ".spare") {
					continue // an empty folder that waits for the next task
				}
				found = append(found, fmt.Sprintf("%s: %s/%s", p.name, sub, e.Name()))
			}
		}
		if len(found) == 0 || time.Now().After(until) {
			slices.Sort(found)
			return found
		}
	}
}

// await polls until try succeeds.
func await(ctx context.Context, limit time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
