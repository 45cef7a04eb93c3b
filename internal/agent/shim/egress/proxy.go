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
	dialTimeout       = 20 * time.Second // for a connection, including DNS
	tunnelIdleTimeout = time.Hour        // without a byte in either direction
	maxLoggedDenials  = 20               // hosts whose denial is logged
)

// Proxy is the proxy of one task.
type Proxy struct {
	rules       *Rules
	logLine     func(line string)
	transport   *http.Transport
	forward     *httputil.ReverseProxy
	dialer      *net.Dialer
	idleTimeout time.Duration

	requests sync.WaitGroup // being served

	mu         sync.Mutex
	closed     bool
	logged     map[string]bool // hosts whose denial was logged
	fullLogged bool            // the message about waiting connections was logged
}

// New returns a Proxy. logLine receives lines for the task's log, one for each denied host, up to a bound. It may be called concurrently, and
// is not called after Serve has returned.
func New(rules *Rules, logLine func(line string)) *Proxy {
	p := &Proxy{rules: rules, logLine: logLine, idleTimeout: tunnelIdleTimeout, logged: map[string]bool{}}
	p.dialer = &net.Dialer{Timeout: dialTimeout, ControlContext: p.checkAddress}
	p.transport = &http.Transport{
		DialContext: p.dialer.DialContext, DisableCompression: true,
		MaxIdleConns: 16, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader,
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.RawQuery = r.In.URL.RawQuery // unchanged, even if Go cannot parse it
		},
		Transport: p.transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), ErrorHandler: p.handleError,
	}
	return p
}

// Serve serves connections to l until ctx ends. Then it closes l and all connections, and returns when no goroutine of the Proxy is left.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) {
	ctx, cancel := context.WithCancel(ctx)
	server := &http.Server{
		Handler: p, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerTimeout, IdleTimeout: keepAliveTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // errors of the task's own programs
	}
	var closer sync.WaitGroup
	closer.Go(func() {
		<-ctx.Done()
		_ = server.Close() // closes l, too
	})
	if err := server.Serve(newLimitListener(l, ctx.Done(), p.onFull)); ctx.Err() == nil {
		p.logLine("the proxy of the network allowlist failed: " + err.Error())
	}
	cancel()
	closer.Wait()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.requests.Wait()
	p.transport.CloseIdleConnections()
}

// beginRequest counts a request, unless the Proxy is closed.
func (p *Proxy) beginRequest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.requests.Add(1)
	return true
}

// ServeHTTP handles one request of the task.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.beginRequest() {
		return
	}
	defer p.requests.Done()
	switch {
	case r.Method != http.MethodConnect && r.URL.Scheme == "" && r.URL.Host == "":
		respond(w, http.StatusBadRequest, "this is the proxy of a task with network: allowlist, not a web server")
		return
	case r.Method != http.MethodConnect && r.URL.Scheme != "http":
		respond(w, http.StatusBadRequest, "the proxy of a task only accepts http:// URLs and CONNECT")
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

type target struct {
	host string // a plain name, or an address
	addr netip.Addr
	port uint16
}

func (t target) String() string { return net.JoinHostPort(t.host, strconv.Itoa(int(t.port))) }

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
		return target{}, fmt.Errorf("%q is not a host name", r.URL.Host)
	}
	return target{host: host, port: port}, nil
}

func (p *Proxy) allowed(t target) bool {
	if t.addr.IsValid() {
		return p.rules.allowsAddress(t.addr, t.port)
	}
	return p.rules.allowsName(t.host, t.port)
}

// deniedError is why a task may not connect to a target.
type deniedError struct {
	target target
	reason string
}

func (r *deniedError) Error() string {
	return fmt.Sprintf("the network allowlist refused %s: %s", r.target, r.reason)
}

// targetKey is the key in a context of the target of a connection.
type targetKey struct{}

// checkAddress checks an address before it is connected to: the task does not choose what a name resolves to, and that may change with each
// lookup.
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
	return &deniedError{target: t, reason: fmt.Sprintf("it resolves to %s, which is not a public address; to allow it, add %s to allow_hosts, too", a, netip.AddrPortFrom(a, ap.Port()))}
}

// deny denies a request, and logs that once for each host.
func (p *Proxy) deny(w http.ResponseWriter, r *deniedError) {
	respond(w, http.StatusForbidden, r.Error())
	p.mu.Lock()
	line, key := r.Error(), r.target.String()
	switch {
	case p.logged[key] || len(p.logged) > maxLoggedDenials:
		line = ""
	case len(p.logged) == maxLoggedDenials:
		line = "the network allowlist refused more hosts; they are no longer logged"
	}
	if line != "" {
		p.logged[key] = true
	}
	p.mu.Unlock()
	if line != "" {
		p.logLine(line)
	}
}

// onFull logs once that connections wait.
func (p *Proxy) onFull() {
	p.mu.Lock()
	logged := p.fullLogged
	p.fullLogged = true
	p.mu.Unlock()
	if !logged {
		p.logLine(fmt.Sprintf("the task has %d connections to the proxy of its network allowlist: others wait until some end (reported once)", maxConns))
	}
}

// handleError responds to a request whose host could not be reached.
func (p *Proxy) handleError(w http.ResponseWriter, r *http.Request, err error) {
	if f, ok := errors.AsType[*deniedError](err); ok {
		p.deny(w, f)
		return
	}
	status := http.StatusBadGateway
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		status = http.StatusGatewayTimeout
	}
	respond(w, status, "cannot reach "+r.URL.Host+" from the worker: "+err.Error())
}

// respond sends a response of the Proxy itself.
func respond(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, line+"\n") //nolint:gosec // plain text; the client may have disconnected
}
