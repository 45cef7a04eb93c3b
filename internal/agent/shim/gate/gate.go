package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	maxVisitors = 256              // connections of a task at a time; more wait
	maxHeader   = 64 << 10         // bytes of a request's header
	headerWait  = 30 * time.Second // for a request's header
	restWait    = 2 * time.Minute  // between the requests of a connection
	dialWait    = 20 * time.Second // for a connection, with looking its name up
	quietWait   = time.Hour        // without a byte in a tunnel, either way
	maxTold     = 20               // refusals that are told, of different hosts
)

// Gate is the proxy of one task. It is made by New.
type Gate struct {
	rules *Rules
	say   func(line string)
	out   *http.Transport
	plain *httputil.ReverseProxy
	from  *net.Dialer
	quiet time.Duration

	busy sync.WaitGroup // requests that are served

	mu     sync.Mutex
	over   bool
	told   map[string]bool // hosts of which it was told that they are refused
	queued bool            // it was told that connections wait
}

// New makes a Gate. say is given lines for the task's log, one for each host that is
// refused, up to a bound; it may be called by several goroutines, and is not after Run has returned.
func New(rules *Rules, say func(line string)) *Gate {
	g := &Gate{rules: rules, say: say, quiet: quietWait, told: map[string]bool{}}
	g.from = &net.Dialer{Timeout: dialWait, ControlContext: g.control}
	g.out = &http.Transport{
		DialContext: g.from.DialContext, DisableCompression: true,
		MaxIdleConns: 16, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader,
	}
	g.plain = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as it stands, also what Go cannot read
		},
		Transport: g.out, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), ErrorHandler: g.failed,
	}
	return g
}

// Run serves whoever connects to l until ctx ends; then l and all connections are closed, and
// nothing of the Gate is left when it returns.
func (g *Gate) Run(ctx context.Context, l net.Listener) {
	ctx, cancel := context.WithCancel(ctx)
	server := &http.Server{
		Handler: g, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerWait, IdleTimeout: restWait,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // what it has to say is about the task's own programs
	}
	var closing sync.WaitGroup
	closing.Go(func() {
		<-ctx.Done()
		_ = server.Close() // and with it l
	})
	if err := server.Serve(newDoor(l, ctx.Done(), g.crowded)); ctx.Err() == nil {
		g.say("the proxy of the network allowlist has ended: " + err.Error())
	}
	cancel()
	closing.Wait()
	g.mu.Lock()
	g.over = true
	g.mu.Unlock()
	g.busy.Wait()
	g.out.CloseIdleConnections()
}

// enter counts a request, unless the Gate has been closed.
func (g *Gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return false
	}
	g.busy.Add(1)
	return true
}

// ServeHTTP answers one request of the task.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.enter() {
		return
	}
	defer g.busy.Done()
	switch {
	case r.Method != http.MethodConnect && r.URL.Scheme == "" && r.URL.Host == "":
		answer(w, http.StatusBadRequest, "this is the proxy of a task with network: allowlist; it answers no requests of its own")
		return
	case r.Method != http.MethodConnect && r.URL.Scheme != "http":
		answer(w, http.StatusBadRequest, "the proxy of a task takes http:// URLs and CONNECT only")
		return
	}
	t, err := targetOf(r)
	if err != nil {
		answer(w, http.StatusBadRequest, err.Error())
		return
	}
	if !g.allows(t) {
		g.refuse(w, &refusal{to: t, why: "add it to allow_hosts"})
		return
	}
	if r.Method == http.MethodConnect {
		g.connect(w, r, t)
		return
	}
	g.plain.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), asked{}, t)))
}

// target is where a task wants to go.
type target struct {
	host string // a plain name, or an address
	addr netip.Addr
	port uint16
}

func (t target) String() string { return net.JoinHostPort(t.host, strconv.Itoa(int(t.port))) }

// targetOf reads it from a request.
func targetOf(r *http.Request) (target, error) {
	host, port, err := split(r.URL.Host)
	if err != nil {
		return target{}, fmt.Errorf("the host %q %w", r.URL.Host, err)
	}
	if port == 0 {
		if r.Method == http.MethodConnect {
			return target{}, fmt.Errorf("%q has no port to connect to", r.URL.Host)
		}
		port = 80
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		return target{host: a.String(), addr: a, port: port}, nil
	}
	if host = plain(host); !isName(host) {
		return target{}, fmt.Errorf("%q is no name of a host", r.URL.Host)
	}
	return target{host: host, port: port}, nil
}

func (g *Gate) allows(t target) bool {
	if t.addr.IsValid() {
		return g.rules.address(t.addr, t.port)
	}
	return g.rules.name(t.host, t.port)
}

// refusal is why a task does not come where it wants to.
type refusal struct {
	to  target
	why string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the network allowlist refused %s: %s", r.to, r.why)
}

// asked is the key in a context of the target for which an address is sought.
type asked struct{}

// control looks at an address before it is connected to: what a name leads to is not the
// task's choice, and may be another each time that one looks.
func (g *Gate) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	a := ap.Addr().Unmap()
	if !special(a.WithZone("")).IsValid() || g.rules.address(a, ap.Port()) {
		return nil
	}
	t, ok := ctx.Value(asked{}).(target)
	if !ok {
		t = target{host: a.String(), port: ap.Port()}
	}
	return &refusal{to: t, why: fmt.Sprintf("it is at %s, which is no public address; if it is to be reached there, add %s to allow_hosts, too", a, netip.AddrPortFrom(a, ap.Port()))}
}

// refuse tells the task, and once for each host its log.
func (g *Gate) refuse(w http.ResponseWriter, r *refusal) {
	answer(w, http.StatusForbidden, r.Error())
	g.mu.Lock()
	line, key := r.Error(), r.to.String()
	switch {
	case g.told[key] || len(g.told) > maxTold:
		line = ""
	case len(g.told) == maxTold:
		line = "the network allowlist refuses more hosts, which are not named here any more"
	}
	if line != "" {
		g.told[key] = true
	}
	g.mu.Unlock()
	if line != "" {
		g.say(line)
	}
}

// crowded tells once that connections wait.
func (g *Gate) crowded() {
	g.mu.Lock()
	said := g.queued
	g.queued = true
	g.mu.Unlock()
	if !said {
		g.say(fmt.Sprintf("the task has %d connections with the proxy of its network allowlist: more wait until some end (said once)", maxVisitors))
	}
}

// failed answers where a host that may be reached was not.
func (g *Gate) failed(w http.ResponseWriter, r *http.Request, err error) {
	if f, ok := errors.AsType[*refusal](err); ok {
		g.refuse(w, f)
		return
	}
	status := http.StatusBadGateway
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		status = http.StatusGatewayTimeout
	}
	answer(w, status, r.URL.Host+" cannot be reached from the worker: "+err.Error())
}

// answer is an answer of the Gate itself.
func answer(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, line+"\n") //nolint:gosec // it is plain text; whoever does not wait for it does not want it
}
