package linktest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/testkit"
)

// Proxy is a TCP proxy that injects faults. Its methods may be called from any goroutine.
type Proxy struct {
	Addr string // where it listens, "127.0.0.1:port"

	target   string
	listener net.Listener
	loops    sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	thawed   chan struct{} // closed while nothing is frozen
	frozen   direction     // valid while thawed is open
	dropping atomic.Int64  // bytes until the connections are cut; negative means never
	refusing atomic.Bool   // new connections are reset
	lag      atomic.Int64  // nanoseconds of delay for each chunk
	rate     atomic.Int64  // bytes a second of each connection and direction; 0 means no limit
}

// NewProxy forwards connections to target until the test ends.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	testkit.NoError(tb, err)
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, conns: map[net.Conn]struct{}{}, thawed: make(chan struct{})}
	close(p.thawed)
	p.dropping.Store(-1)
	p.loops.Go(p.accept)
	tb.Cleanup(func() {
		l.Close()
		p.Thaw()
		p.Drop()
		p.loops.Wait()
	})
	return p
}

type direction uint8

const (
	up   direction = 1 << iota // to the target
	down                       // from it
)

// Freeze stops forwarding, like a pulled cable: connections stay open and silent.
func (p *Proxy) Freeze() { p.freeze(up | down) }

// FreezeDown stops forwarding from the target.
func (p *Proxy) FreezeDown() { p.freeze(down) }

// FreezeUp stops forwarding to the target.
func (p *Proxy) FreezeUp() { p.freeze(up) }

func (p *Proxy) freeze(which direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = which
	if isClosed(p.thawed) {
		p.thawed = make(chan struct{})
	}
}

// Thaw resumes forwarding. No data is lost.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !isClosed(p.thawed) {
		close(p.thawed)
	}
}

// Drop cuts all connections. New ones are accepted.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
	clear(p.conns)
}

// reset closes a connection as a restart of the machine does.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// DropAfter cuts all connections after n more bytes in any direction.
func (p *Proxy) DropAfter(n int64) { p.dropping.Store(n) }

// Refuse sets whether new connections are reset at once.
func (p *Proxy) Refuse(on bool) { p.refusing.Store(on) }

// Lag delays all data by d.
func (p *Proxy) Lag(d time.Duration) { p.lag.Store(int64(d)) }

// Rate limits each direction of each connection to n bytes a second; 0 means no limit.
func (p *Proxy) Rate(n int64) { p.rate.Store(n) }

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.refusing.Load() {
			reset(in)
			continue
		}
		out, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.loops.Go(func() { p.pump(out, in, up) })
		p.loops.Go(func() { p.pump(in, out, down) })
	}
}

func (p *Proxy) pump(to, from net.Conn, which direction) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(p.chunk(buf))
		p.delay(n)
		p.waitThawed(which)
		b := buf[:n]
		if left := p.dropping.Load(); left >= 0 {
			b = b[:min(int64(n), left)]
			if p.dropping.Add(-int64(len(b))) <= 0 {
				_, _ = to.Write(b) // the last bytes before the cut
				p.dropping.Store(-1)
				p.Drop()
				return
			}
		}
		if _, werr := to.Write(b); err != nil || werr != nil {
			return
		}
	}
}

// chunk returns the part of buf to read at once: small if the rate is limited.
func (p *Proxy) chunk(buf []byte) []byte {
	if rate := p.rate.Load(); rate > 0 {
		return buf[:max(1, min(int64(len(buf)), rate/10))]
	}
	return buf
}

// delay sleeps for the time that n bytes take.
func (p *Proxy) delay(n int) {
	d := time.Duration(p.lag.Load())
	if rate := p.rate.Load(); rate > 0 {
		d += time.Duration(n) * time.Second / time.Duration(rate)
	}
	if d > 0 {
		time.Sleep(d)
	}
}

// waitThawed blocks while the direction is frozen.
func (p *Proxy) waitThawed(which direction) {
	p.mu.Lock()
	thawed, passing := p.thawed, p.frozen&which == 0
	p.mu.Unlock()
	if !passing {
		<-thawed
	}
}
