package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/simworker"
)

// simulateWorkers connects 2,000 workers of a slot and 4 GPUs each to c until the benchmark ends; a task of theirs takes run.
func simulateWorkers(b *testing.B, c *mustertest.Cluster, run time.Duration) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- simworker.Run(ctx, simworker.Config{Server: "http://" + c.Addr, JoinToken: mustertest.JoinToken, Workers: 2000, Slots: 1, GPUs: 4, Run: run}, func() { close(ready) })
	}()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		b.Fatal(err)
	case <-time.After(5 * time.Minute):
		b.Fatal("the simulated workers did not connect within 5 minutes")
	}
}

// BenchmarkTop is muster top on a terminal of 120×40, on a server with 2,000 simulated workers of 4 GPUs each that run a job of 1,000,000 tasks
// meanwhile: how many bytes it writes to the terminal and how often, and what it takes of the processor and of memory, on each page for 15 s.
func BenchmarkTop(b *testing.B) {
	const stay = 15 * time.Second
	c := mustertest.NewWith(b, b.TempDir(), mustertest.Options{Heartbeat: 10 * time.Second})
	simulateWorkers(b, c, 1200*time.Millisecond)
	c.Submit(arraySpec(muster.KindNoop, 1_000_000))
	for b.Loop() {
		master, slave := openTerminal(b)
		top := exec.CommandContext(b.Context(), mustertest.Program(b), "top", "--server", "http://"+c.Addr)
		top.Env = append(os.Environ(), "TERM=xterm-256color", "MUSTER_TOKEN="+mustertest.AdminToken)
		top.Stdin, top.Stdout, top.Stderr = slave, slave, slave
		top.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := top.Start(); err != nil {
			b.Fatal(err)
		}
		var bytes, writes atomic.Int64
		go func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := master.Read(buf)
				if err != nil {
					return
				}
				bytes.Add(int64(n))
				writes.Add(1)
			}
		}()
		for _, page := range []struct{ name, keys string }{{"jobs", "1"}, {"tasks", "2"}, {"workers", "3"}, {"gpus", "4"}, {"job", "1\r"}} {
			if _, err := master.WriteString(page.keys); err != nil {
				b.Fatal(err)
			}
			time.Sleep(3 * time.Second) // until the page is there
			from, first, cpu := bytes.Load(), writes.Load(), processorTime(b, top.Process.Pid)
			time.Sleep(stay)
			b.ReportMetric(float64(bytes.Load()-from)/stay.Seconds(), page.name+"-B/s")
			b.ReportMetric(float64(writes.Load()-first)/stay.Seconds(), page.name+"-writes/s")
			b.ReportMetric(100*float64(processorTime(b, top.Process.Pid)-cpu)/float64(stay), page.name+"-%cpu")
			b.ReportMetric(residentMiB(b, top.Process.Pid), page.name+"-MiB")
		}
		if _, err := master.WriteString("q"); err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(top.Wait(), slave.Close(), master.Close()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// openTerminal opens a pseudo-terminal of 120×40.
func openTerminal(b *testing.B) (master, slave *os.File) {
	b.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		b.Fatal(err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0), unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}))
	if err != nil {
		b.Fatal(err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		b.Fatal(err)
	}
	return master, slave
}

// processorTime is the time that a process has used.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// residentMiB is the memory of a process in MiB.
func residentMiB(b *testing.B, pid int) float64 {
	b.Helper()
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		b.Fatal(err)
	}
	return float64(pages*os.Getpagesize()) / (1 << 20)
}
