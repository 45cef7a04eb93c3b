package egress

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
	maxConns          = 256              // connections of a task at a time; more wait
	maxHeader         = 64 << 10         // bytes of a request's header
	headerTimeout     = 30 * time.Second // for a request's header
	keepAliveTimeout  = 2 * time.Minute  // between the requests of a connection
	dialTimeout       = 20 * time.Second // for a connection, with looking its name up
	tunnelIdleTimeout = time.Hour        // without a byte in a tunnel, either way
	maxLoggedDenials  = 20               // refusals that are told, of different hosts
)

// Proxy is the proxy of one task. It is made by New.
type Proxy struct {
	rules       *Rules
	logLine     func(line string)
	transport   *http.Transport
	forward     *httputil.ReverseProxy
	dialer      *net.Dialer
	idleTimeout time.Duration

	requests sync.WaitGroup // requests that are served

	mu         sync.Mutex
	closed     bool
	logged     map[string]bool // hosts of which it was told that they are refused
	fullLogged bool            // it was told that connections wait
}

// New makes a Gate. say is given lines for the task's log, one for each host that is
// refused, up to a bound; it may be called by several goroutines, and is not after Run has returned.
func New(rules *Rules, logLine func(line string)) *Proxy {
	p := &Proxy{rules: rules, logLine: logLine, idleTimeout: tunnelIdleTimeout, logged: map[string]bool{}}
	p.dialer = &net.Dialer{Timeout: dialTimeout, ControlContext: p.checkAddress}
	p.transport = &http.Transport{
		DialContext: p.dialer.DialContext, DisableCompression: true,
		MaxIdleConns: 16, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader,
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.RawQuery = r.In.URL.RawQuery // as it stands, also what Go cannot read
		},
		Transport: p.transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), ErrorHandler: p.handleError,
	}
	return p
}

// Serve serves whoever connects to l until ctx ends; then l and all connections are closed, and
// nothing of the Gate is left when it returns.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) {
	ctx, cancel := context.WithCancel(ctx)
	server := &http.Server{
		Handler: p, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTimeout, IdleTimeout: keepAliveTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // what it has to say is about the task's own programs
	}
	var closer sync.WaitGroup
	closer.Go(func() {
		<-ctx.Done()
		_ = server.Close() // and with it l
	})
	if err := server.Serve(newLimitListener(l, ctx.Done(), p.onFull)); ctx.Err() == nil {
		p.logLine("the proxy of the network allowlist has ended: " + err.Error())
	}
	cancel()
	closer.Wait()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.requests.Wait()
	p.transport.CloseIdleConnections()
}

// beginRequest counts a request, unless the Gate has been closed.
func (p *Proxy) beginRequest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.requests.Add(1)
	return true
}

// ServeHTTP answers one request of the task.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.beginRequest() {
		return
	}
	defer p.requests.Done()
	switch {
	case r.Method != http.MethodConnect && r.URL.Scheme == "" && r.URL.Host == "":
		respond(w, http.StatusBadRequest, "this is the proxy of a task with network: allowlist; it answers no requests of its own")
		return
	case r.Method != http.MethodConnect && r.URL.Scheme != "http":
		respond(w, http.StatusBadRequest, "the proxy of a task takes http:// URLs and CONNECT only")
		return
	}
	t, err := parseTarget(r)
	if err != nil {
		respond(w, http.StatusBadRequest, err.Error())
		return
	}
	if !p.allowed(t) {
		p.deny(w, &deniedError{target: t, reason: "add it to allow_hosts"})
		return
	}
	if r.Method == http.MethodConnect {
		p.connect(w, r, t)
		return
	}
	p.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), targetKey{}, t)))
}

// target is where a task wants to go.
type target struct {
	host string // a plain name, or an address
	addr netip.Addr
	port uint16
}

func (t target) String() string { return net.JoinHostPort(t.host, strconv.Itoa(int(t.port))) }

// parseTarget reads it from a request.
func parseTarget(r *http.Request) (target, error) {
	host, port, err := splitHostPort(r.URL.Host)
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
	if host = normalizeName(host); !validName(host) {
		return target{}, fmt.Errorf("%q is no name of a host", r.URL.Host)
	}
	return target{host: host, port: port}, nil
}

func (p *Proxy) allowed(t target) bool {
	if t.addr.IsValid() {
		return p.rules.allowsAddress(t.addr, t.port)
	}
	return p.rules.allowsName(t.host, t.port)
}

// deniedError is why a task does not come where it wants to.
type deniedError struct {
	target target
	reason string
}

func (r *deniedError) Error() string {
	return fmt.Sprintf("the network allowlist refused %s: %s", r.target, r.reason)
}

// targetKey is the key in a context of the target for which an address is sought.
type targetKey struct{}

// checkAddress looks at an address before it is connected to: what a name leads to is not the
// task's choice, and may be another each time that one looks.
func (p *Proxy) checkAddress(ctx context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	a := ap.Addr().Unmap()
	if !specialBlock(a.WithZone("")).IsValid() || p.rules.allowsAddress(a, ap.Port()) {
		return nil
	}
	t, ok := ctx.Value(targetKey{}).(target)
	if !ok {
		t = target{host: a.String(), port: ap.Port()}
	}
	return &deniedError{target: t, reason: fmt.Sprintf("it is at %s, which is no public address; if it is to be reached there, add %s to allow_hosts, too", a, netip.AddrPortFrom(a, ap.Port()))}
}

// deny tells the task, and once for each host its log.
func (p *Proxy) deny(w http.ResponseWriter, r *deniedError) {
	respond(w, http.StatusForbidden, r.Error())
	p.mu.Lock()
	line, key := r.Error(), r.target.String()
	switch {
	case p.logged[key] || len(p.logged) > maxLoggedDenials:
		line = ""
	case len(p.logged) == maxLoggedDenials:
		line = "the network allowlist refuses more hosts, which are not named here any more"
	}
	if line != "" {
		p.logged[key] = true
	}
	p.mu.Unlock()
	if line != "" {
		p.logLine(line)
	}
}

// onFull tells once that connections wait.
func (p *Proxy) onFull() {
	p.mu.Lock()
	logged := p.fullLogged
	p.fullLogged = true
	p.mu.Unlock()
	if !logged {
		p.logLine(fmt.Sprintf("the task has %d connections with the proxy of its network allowlist: more wait until some end (said once)", maxConns))
	}
}

// handleError answers where a host that may be reached was not.
func (p *Proxy) handleError(w http.ResponseWriter, r *http.Request, err error) {
	if f, ok := errors.AsType[*deniedError](err); ok {
		p.deny(w, f)
		return
	}
	status := http.StatusBadGateway
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		status = http.StatusGatewayTimeout
	}
	respond(w, status, r.URL.Host+" cannot be reached from the worker: "+err.Error())
}

// respond is an answer of the Gate itself.
func respond(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, line+"\n") //nolint:gosec // it is plain text; whoever does not wait for it does not want it
}
