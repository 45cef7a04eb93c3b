//go:build linux

package chaos

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link/linktest"
)

// injectFaults carries out the faults of a plan. It returns when all have ended and what they hit is running again.
func (c *cluster) injectFaults(ctx context.Context, start time.Time, faults []fault) (done []DoneFault) {
	lanes := map[string][]fault{}
	for _, f := range faults {
		lanes[f.Target] = append(lanes[f.Target], f)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, lane := range lanes {
		all.Go(func() {
			for _, f := range lane {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(start.Add(f.At))):
				}
				d := DoneFault{Target: f.Target, Kind: f.Kind, From: time.Now().UnixNano()}
				c.t.Logf("fault at %s", f)
				c.injectFault(ctx, f)
				d.To = time.Now().UnixNano()
				mu.Lock()
				done = append(done, d)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return done
}

// injectFault lets one fault happen, waits while it lasts, and ends it.
func (c *cluster) injectFault(ctx context.Context, f fault) {
	name, part, _ := strings.Cut(f.Target, "_")
	waitWhileFaulty := func() {
		select {
		case <-ctx.Done():
		case <-time.After(f.For):
		}
	}
	switch {
	case f.Target == "client_net":
		injectNetworkFault(c.userNet, f, waitWhileFaulty)
	case part == "net":
		injectNetworkFault(c.nets[c.index(name)], f, waitWhileFaulty)
	case part == "disk":
		if c.disks {
			c.keepDiskFull(c.process(name), waitWhileFaulty)
		}
	default:
		c.injectProcessFault(ctx, c.process(name), f, waitWhileFaulty)
	}
}

// keepDiskFull keeps the disk of a process full: what is freed meanwhile is taken at once.
func (c *cluster) keepDiskFull(p *process, waitWhileFaulty func()) {
	done := make(chan struct{})
	var filling sync.WaitGroup
	filling.Go(func() {
		for logged := false; ; {
			if err := c.setDiskFull(p, true); err != nil && !logged {
				c.t.Logf("the disk of %s cannot be filled: %v", p.name, err)
				logged = true
			}
			select {
			case <-done:
				return
			case <-time.After(20 * ms):
			}
		}
	})
	waitWhileFaulty()
	close(done)
	filling.Wait()
	if err := c.setDiskFull(p, false); err != nil {
		c.recordExit("the disk of %s cannot be freed: %v", p.name, err)
	}
}

func (c *cluster) index(name string) int { return int(name[len(name)-1] - '0') }

func (c *cluster) process(name string) *process {
	if name == "server" {
		return c.server
	}
	return c.workers[c.index(name)]
}

// stopTimeout is the time that a process may take to end after SIGTERM: a worker gives its tasks two seconds, their kill grace, and uploads
// their files; the server may be slow.
const stopTimeout = 45 * time.Second

// injectProcessFault disturbs a process, and its supervisor.
func (c *cluster) injectProcessFault(ctx context.Context, p *process, f fault, waitWhileFaulty func()) {
	switch f.Kind {
	case "kill", "kill_long":
		p.kill()
		if p == c.server {
			c.ageBlobs()
		}
		waitWhileFaulty()
		p.start()
	case "kill_thrice":
		for n := range 3 {
			p.kill()
			waitWhileFaulty()
			p.start()
			if n < 2 {
				time.Sleep(time.Duration(200+f.N%900) * ms)
			}
		}
	case "restart":
		p.stop(stopTimeout)
		waitWhileFaulty()
		p.start()
	case "stop":
		p.signal(syscall.SIGSTOP, false)
		waitWhileFaulty()
		p.signal(syscall.SIGCONT, false)
	case "upgrade":
		p.signal(syscall.SIGUSR2, false)
		waitWhileFaulty()
	case "drain":
		c.drain(ctx, p, f, waitWhileFaulty)
	case "shim_kill", "both_kill":
		shims := p.shims()
		if f.Kind == "both_kill" {
			p.kill()
		}
		for _, pid := range shims {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may just have ended
		}
		waitWhileFaulty()
		p.start()
	case "shim_stop":
		shims := p.shims()
		for _, pid := range shims {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
		waitWhileFaulty()
		for _, pid := range shims {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// drain drains a worker with a deadline; after it has stopped, it is started again.
func (c *cluster) drain(ctx context.Context, p *process, f fault, waitWhileFaulty func()) {
	p.mu.Lock()
	p.exitExpected, p.keepRunning, p.drained = true, false, true
	done := p.done
	p.mu.Unlock()
	deadline := muster.Duration(f.For / 2)
	cl := c.client(10*time.Second, false)
	if _, err := cl.DrainWorker(ctx, p.name, &deadline); err == nil {
		waitWhileFaulty()
		select {
		case <-done:
		case <-time.After(time.Duration(f.N%20) * s): // it may be cut off from the order
		}
	}
	p.stop(stopTimeout)
	if _, err := cl.ResumeWorker(ctx, p.name); err == nil {
		p.mu.Lock()
		p.drained = false
		p.mu.Unlock()
	}
	p.start()
}

// injectNetworkFault disturbs the network of a worker, or of clients.
func injectNetworkFault(net *linktest.Proxy, f fault, waitWhileFaulty func()) {
	switch f.Kind {
	case "cut":
		net.Refuse(true)
		net.Drop()
		waitWhileFaulty()
		net.Refuse(false)
	case "silent":
		net.Freeze()
		waitWhileFaulty()
		net.Thaw()
	case "half_up":
		net.FreezeUp()
		waitWhileFaulty()
		net.Thaw()
	case "half_down":
		net.FreezeDown()
		waitWhileFaulty()
		net.Thaw()
	case "slow":
		net.Rate(int64(2000 + f.N%40_000))
		waitWhileFaulty()
		net.Rate(0)
	case "lag":
		net.Lag(time.Duration(20+f.N%500) * ms)
		waitWhileFaulty()
		net.Lag(0)
	case "reset":
		for end := time.Now().Add(f.For); time.Now().Before(end); time.Sleep(300 * ms) {
			net.DropAfter(int64(f.N % 9000))
		}
		net.DropAfter(-1)
	case "flap":
		for end := time.Now().Add(f.For); time.Now().Before(end); time.Sleep(time.Duration(100+f.N%900) * ms) {
			net.Drop()
		}
	}
}
