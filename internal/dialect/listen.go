package dialect

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/connlimit"
)

const (
	maxConnections = 2048             // of one gateway; three quarters of them may be of one address
	headerTimeout  = 10 * time.Second // for the head of a request
	idleTimeout    = 2 * time.Minute  // of a connection between requests
	stopGrace      = 2 * time.Second  // for requests to end when the gateway stops
	keyPathPrefix  = "/k/"            // before a key in a path
)

// Listener is the port of a gateway.
type Listener struct {
	// Token finds the Muster key that a request carries in the way of the gateway's system, "" for none. It is asked where neither
	// the path nor an Authorization header has one. It is set before Serve.
	Token func(r *http.Request) string
	// WriteError answers a request that has no valid key as the system's server would. Nil answers with JSON. It is set before Serve.
	WriteError func(w http.ResponseWriter, r *http.Request, err error)

	deps     Deps
	listener net.Listener
	bodies   *bodyLimiter
}

// MaxConnections returns how many a gateway has at most where a process may open so many descriptors. The ports of eight gateways have together
// what connlimit.Total leaves for connections.
func MaxConnections(descriptors uint64) int {
	return min(maxConnections, connlimit.ConnsFor(descriptors)/8)
}

// Listen opens the port of a gateway. Its errors name the option.
func Listen(ctx context.Context, deps Deps) (*Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", deps.Config.Address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, muster.Errorf(muster.Conflict, "--dialect %s: cannot listen on %s, because another program does: stop it, or choose another address with --dialect %s=ADDRESS",
			deps.Config.Name, deps.Config.Address, deps.Config.Name)
	case err != nil:
		return nil, muster.Errorf(muster.Invalid, "--dialect %s: cannot listen on %s: %w", deps.Config.Name, deps.Config.Address, err)
	}
	limiter := connlimit.New(MaxConnections(connlimit.Descriptors()))
	return &Listener{deps: deps, listener: limiter.Listen(l), bodies: newBodyLimiter()}, nil
}

// Close gives the port back, for a gateway that does not get to Serve.
func (l *Listener) Close() error { return l.listener.Close() }

// URL is where the port is reached from this machine.
func (l *Listener) URL() string {
	host, port, err := net.SplitHostPort(l.listener.Addr().String())
	if err != nil {
		return "http://" + l.listener.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Serve serves h until ctx ends, with which the contexts of requests end; those that are under way have a moment to answer. The
// port is closed when it returns.
//
// A Muster key is taken from the path, /k/KEY/…, which h sees without it, from an Authorization header or by l.Token. One
// that is there must be valid; with key=required it must be there. CallerFromContext tells h whose it is. Paths are never logged.
// A panic of h ends its request only. A body that stands still for a minute breaks off.
func (l *Listener) Serve(ctx context.Context, h http.Handler) error {
	server := &http.Server{
		Handler:           connlimit.Handler(l.recoverPanics(l.bodies.limitBodies(l.authenticate(h)))),
		ConnContext:       connlimit.ConnContext,
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

// recoverPanics ends the request of a handler that panics, and no other.
func (l *Listener) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // it is this very value
				panic(p)
			}
			l.deps.Log.Error("a handler panicked", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			WriteJSON(w, http.StatusInternalServerError, map[string]string{"error": "a bug of the server"})
		}()
		next.ServeHTTP(w, r)
	})
}

// authenticate finds out who asks.
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
			next.ServeHTTP(w, r)
			return
		}
		whoami, err := l.deps.Server.Authorize(r.Context(), token)
		if err != nil {
			l.writeError(w, r, err)
			return
		}
		defer connlimit.MarkAuthenticated(r.Context())()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, Caller{Whoami: whoami, Token: token})))
	})
}

// withLeadingSlash is a path with one slash before it: a program that has one at the end of its server's URL sends two, and would be redirected to a
// path without the key.
func withLeadingSlash(path string) string { return "/" + strings.TrimLeft(path, "/") }

func (l *Listener) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if l.WriteError != nil {
		l.WriteError(w, r, err)
		return
	}
	WriteJSON(w, HTTPStatus(err), map[string]string{"error": err.Error()})
}

type callerKey struct{}

// Caller is whose key a request has. The zero Caller is that of an open gateway.
type Caller struct {
	client.Whoami

	Token string
}

// CallerFromContext returns who asks.
func CallerFromContext(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// CanJoinWorkers returns a Forbidden error if the caller's key is none by which workers join.
func (c Caller) CanJoinWorkers() error {
	if c.Token == "" {
		return nil
	}
	return auth.Authorize(c.principal(), auth.JoinWorkers, auth.Object{})
}

func (c Caller) principal() auth.Principal {
	return auth.Principal{KeyID: c.Key, Name: c.Name, Role: auth.Role(c.Role), Project: c.Project}
}

// WriteJSON answers a request with a JSON value.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"a bug of the server"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the caller may be gone
}
