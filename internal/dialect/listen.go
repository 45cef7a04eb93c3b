package dialect

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/browserguard"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/connlimit"
)

const (
	maxConnections = 2048             // of one gateway; one address may have three quarters of them
	headerTimeout  = 10 * time.Second // for the header of a request
	idleTimeout    = 2 * time.Minute  // of a connection between requests
	stopGrace      = 2 * time.Second  // for active requests when the gateway stops
	keyPathPrefix  = "/k/"            // before a key in a path
)

// Listener is the port of a gateway.
type Listener struct {
	// Token returns the Muster key that a request carries in a way of the foreign system, "" for none. It is called if neither
	// the path nor an Authorization header has one. It is set before Serve.
	Token func(r *http.Request) string
	// WriteError answers a request without a valid key as the foreign server does, at first with JSON. It is set before Serve.
	WriteError func(w http.ResponseWriter, r *http.Request, err error)

	deps        Deps
	listener    net.Listener
	bodies      *bodyLimiter
	crossOrigin *http.CrossOriginProtection
}

// MaxConnections returns the limit of one gateway's connections for a process with so many descriptors. Eight gateways share
// what connlimit leaves for connections.
func MaxConnections(descriptors uint64) int {
	return min(maxConnections, connlimit.ConnsFor(descriptors)/8)
}

// Listen opens the port of a gateway.
func Listen(ctx context.Context, deps Deps) (*Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", deps.Config.Address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, muster.Errorf(muster.Conflict, "--dialect %s: address %s is already in use: stop the other program, or choose another address with --dialect %s=ADDRESS",
			deps.Config.Name, deps.Config.Address, deps.Config.Name)
	case err != nil:
		return nil, muster.Errorf(muster.Invalid, "--dialect %s: cannot listen on %s: %w", deps.Config.Name, deps.Config.Address, err)
	}
	l = connlimit.New(MaxConnections(connlimit.Descriptors())).Listen(l)
	if deps.TLS != nil {
		l = tls.NewListener(l, deps.TLS)
	}
	return &Listener{deps: deps, listener: l, bodies: newBodyLimiter(), crossOrigin: http.NewCrossOriginProtection(), WriteError: writeError}, nil
}

// Close closes the port of a gateway that does not call Serve.
func (l *Listener) Close() error { return l.listener.Close() }

// URL returns the URL of the port for programs on this machine.
func (l *Listener) URL() string {
	scheme := "http://"
	if l.deps.TLS != nil {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(l.listener.Addr().String())
	if err != nil {
		return scheme + l.listener.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + net.JoinHostPort(host, port)
}

// Serve serves h until ctx ends, which also ends the contexts of requests; active requests have 2 s to answer. The port is closed
// when it returns.
//
// A Muster key comes from the path, /k/KEY/…, which h receives without it, from an Authorization header or from l.Token. A key must be
// valid; with key=required it must be present. CallerFromContext returns its owner. Paths are never logged.
// A panic of h ends only its request. A body that makes no progress for a minute ends with an error.
func (l *Listener) Serve(ctx context.Context, h http.Handler) error {
	server := &http.Server{
		Handler: connlimit.Handler(browserguard.Headers(l.recoverPanics(l.setOrigin(l.recordDenials(l.bodies.limitBodies(l.authenticate(h))))))),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return withSource(connlimit.ConnContext(ctx, c), connlimit.RemoteAddr(c.RemoteAddr().String()))
		},
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(l.deps.Log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		err := server.Shutdown(shutdownCtx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close()
		}
		stopped <- err
	})
	err := server.Serve(l.listener)
	if stop() {
		return err
	}
	return <-stopped
}

// recoverPanics ends only the request of a handler that panics.
func (l *Listener) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // never wrapped
				panic(p)
			}
			l.deps.Log.Error("handler panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			WriteJSON(w, http.StatusInternalServerError, map[string]string{"error": "internal server error"})
		}()
		next.ServeHTTP(w, r)
	})
}

// authenticate checks the key of a request.
func (l *Listener) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := ""
		if rest, ok := strings.CutPrefix(r.URL.Path, keyPathPrefix); ok {
			key, path, _ := strings.Cut(rest, "/")
			token = key
			rawPath := ""
			if rest, ok := strings.CutPrefix(r.URL.RawPath, keyPathPrefix); ok {
				_, rawPath, _ = strings.Cut(rest, "/")
				rawPath = withLeadingSlash(rawPath)
			}
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath, r.RequestURI = withLeadingSlash(path), rawPath, ""
		}
		if token == "" {
			if t := auth.Bearer(r.Header.Get("Authorization")); strings.HasPrefix(t, "mst_") {
				token = t
			}
		}
		if token == "" && l.Token != nil {
			token = l.Token(r)
		}
		if token == "" && !l.deps.Config.KeyRequired {
			if err := l.checkBrowser(r); err != nil {
				l.WriteError(w, r, err)
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		whoami, err := l.deps.Server.Authorize(r.Context(), token)
		if err != nil {
			l.WriteError(w, r, err)
			return
		}
		defer connlimit.MarkAuthenticated(r.Context())()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, Caller{Whoami: whoami, Token: token})))
	})
}

// setOrigin adds the client and this gateway to the context of a request, for the requests to the server that it causes.
func (l *Listener) setOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(withOrigin(r.Context(), RemoteAddr(r), l.deps.Config.Name)))
	})
}

// checkBrowser refuses what a page of another site makes a browser send to a gateway without keys, which takes anybody's tasks.
func (l *Listener) checkBrowser(r *http.Request) error {
	if err := l.deps.Hosts.Check(r); err != nil {
		return err
	}
	if err := l.crossOrigin.Check(r); err != nil {
		return muster.Errorf(muster.Forbidden, "a page of another site (%s) sent this request to a gateway without keys: use key=required", cmp.Or(r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")))
	}
	return nil
}

// withLeadingSlash returns a path with exactly one leading slash: with two, as a client sends them whose URL ends in a slash, the mux would
// redirect to a path without the key.
func withLeadingSlash(path string) string { return "/" + strings.TrimLeft(path, "/") }

func writeError(w http.ResponseWriter, _ *http.Request, err error) {
	WriteJSON(w, HTTPStatus(w, err), map[string]string{"error": err.Error()})
}

type callerKey struct{}

// Caller is the owner of a request's key. The zero Caller is that of a request without a key.
type Caller struct {
	client.Whoami

	Token string
}

// CallerFromContext returns the caller of a request from its context.
func CallerFromContext(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// CanJoinWorkers returns a Forbidden error if workers cannot join with the caller's key.
func (c Caller) CanJoinWorkers() error {
	if c.Token == "" {
		return nil
	}
	return CanJoinWorkers(c.Whoami)
}

// CanSeeWorkers returns a Forbidden error if the caller may not see the workers of others.
func (c Caller) CanSeeWorkers() error {
	if c.Token == "" {
		return nil
	}
	return Can(c.Whoami, auth.ReadWorkers, auth.Object{})
}

// CanJoinWorkers returns a Forbidden error if workers of another system cannot join with a key: a gateway cannot enforce what a join token is
// bound to, since its workers come and go.
func CanJoinWorkers(who client.Whoami) error {
	if who.Limited {
		return muster.Errorf(muster.Forbidden, "the join token %q has a limit of uses, tags or approval, which gateways do not enforce: use another one", who.Name)
	}
	return Can(who, auth.JoinWorkers, auth.Object{Project: auth.AllProjects})
}

// Can returns a Forbidden error if the owner of a key may not do verb to what.
func Can(who client.Whoami, verb auth.Verb, what auth.Object) error {
	p := auth.Principal{KeyID: who.Key, Name: who.Name, Role: auth.Role(who.Role), Project: who.Project, Job: who.Job, Worker: who.Worker, Expires: who.ExpiresAt}
	return auth.Can(p, verb, what)
}

// WriteJSON writes a JSON response.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"internal server error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client may have disconnected
}

// HTTPStatus returns the status with which gateways answer an error: 500 for one without a code. It differs from Muster's own API for
// Undetermined, which is 503, because programs of other systems repeat such requests. For a request beyond a limit it is 429, and the
// header Retry-After of w is set.
func HTTPStatus(w http.ResponseWriter, err error) int {
	if d := backoff.DelayOf(err); d > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
		return http.StatusTooManyRequests
	}
	return cmp.Or(statuses[muster.CodeOf(err)], http.StatusInternalServerError)
}

var statuses = map[muster.Code]int{ //nolint:gochecknoglobals // a constant table
	muster.Invalid: http.StatusBadRequest, muster.InvalidSpec: http.StatusBadRequest, muster.Unauthenticated: http.StatusUnauthorized,
	muster.Forbidden: http.StatusForbidden, muster.NotFound: http.StatusNotFound, muster.Conflict: http.StatusConflict,
	muster.TooLarge: http.StatusRequestEntityTooLarge, muster.Unavailable: http.StatusServiceUnavailable,
	muster.Undetermined: http.StatusServiceUnavailable, muster.StorageFull: http.StatusInsufficientStorage,
}
