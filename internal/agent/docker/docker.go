// Package docker speaks with container engines by the Docker Engine API, which
// Podman speaks too. It knows nothing of tasks: it is the words, not the house.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// Engine is one container engine. No connection is kept while nothing is asked. All
// methods may be called at the same time; each heeds the end of its ctx, and
// those that do not say otherwise answer within seconds where the engine is well.
type Engine struct {
	host       string
	api        atomic.Pointer[client.Client]
	apiVersion atomic.Value // the newest version of the API that it spoke at the last Ping
}

// Why an engine did not do what it was asked. Every error of an Engine wraps at
// most one of these, or the cause with which its ctx ended.
var (
	ErrUnreachable         = errors.New("the container engine does not answer")    // or went away before it had answered
	ErrNotFound            = errors.New("no such object")                          // image or container
	ErrDenied              = errors.New("not allowed")                             // by the engine or a registry
	ErrConflict            = errors.New("in use, or its name is taken")            // by another object
	ErrRegistryUnreachable = errors.New("the registry cannot be reached")          // it is down, or its name is unknown, or its certificate is
	ErrRegistryFailed      = errors.New("the registry sends what cannot be right") // it fails, or ends too early, or its bytes have another hash
	ErrDiskFull            = errors.New("no space left on the engine's disk")
	ErrEngineFailed        = errors.New("the container engine failed") // by what it says itself, which Podman also does of mistakes in a request
)

// Open returns the engine at host, a URL such as unix:///var/run/docker.sock or
// tcp://10.0.0.5:2375. It does not ask whether there is one.
func Open(host string) (*Engine, error) {
	if u, err := url.Parse(host); err != nil || u.Scheme == "" {
		return nil, fmt.Errorf("%q is no address of a container engine: write one such as unix:///var/run/docker.sock", host)
	}
	e := &Engine{host: host}
	if err := e.reconnect(); err != nil {
		return nil, err
	}
	return e, nil
}

// reconnect has the version of the API agreed upon at the next question: an engine that was away may be another
// one, which does not take the old version any more.
func (e *Engine) reconnect() error {
	api, err := client.New(client.WithHost(e.host), client.WithTLSClientConfigFromEnv(), client.WithUserAgent("muster"))
	if err != nil {
		return fmt.Errorf("the container engine at %s cannot be used: %w", e.host, err)
	}
	if prev := e.api.Swap(api); prev != nil {
		_ = prev.Close() // what is under way goes on
	}
	return nil
}

// Host is where the engine is.
func (e *Engine) Host() string { return e.host }

// Close ends what is kept of connections.
func (e *Engine) Close() error { return e.api.Load().Close() }

// wrapError puts an error of the engine into our words: doing says what was tried, such as "the
// image cannot be fetched".
func (e *Engine) wrapError(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	kind := error(nil)
	switch {
	case ctx.Err() != nil:
		kind = context.Cause(ctx)
	case client.IsErrConnectionFailed(err), connClosed(err):
		kind = ErrUnreachable
	case strings.Contains(err.Error(), "no space left on device"):
		kind = ErrDiskFull
	case errdefs.IsNotFound(err):
		kind = ErrNotFound
	case errdefs.IsPermissionDenied(err), errdefs.IsUnauthorized(err):
		kind = ErrDenied
	case errdefs.IsConflict(err), strings.Contains(err.Error(), "that name is already in use"): // Podman 4 answers 500
		kind = ErrConflict
	case errdefs.IsInternal(err), errdefs.IsUnavailable(err):
		kind = ErrEngineFailed
	}
	return newError(doing, err, kind)
}

// newError is an error with the words of err, and of a kind unless that is nil.
func newError(doing string, err, kind error) error {
	msg := doing + ": " + cleanMessage(err)
	if kind == nil {
		return &engineError{msg: msg, causes: []error{err}}
	}
	return &engineError{msg: msg, causes: []error{kind, err}}
}

// cleanMessage is what err says to people who did not make the request. What the engine itself says is left as it is,
// also where it names requests of its own.
func cleanMessage(err error) string {
	text := strings.TrimPrefix(strings.TrimSpace(err.Error()), "Error response from daemon: ")
	if _, isURLError := errors.AsType[*url.Error](err); isURLError || client.IsErrConnectionFailed(err) {
		text = requestPrefixes.ReplaceAllString(text, "")
		text = daemonDown.ReplaceAllString(text, "nobody takes connections there")
		text = strings.ReplaceAll(text, ".\n* ", "; ")
	}
	switch text {
	case io.EOF.Error(), io.ErrUnexpectedEOF.Error():
		return "the connection was closed"
	default:
		return text
	}
}

// What the client says of requests of its own.
var (
	requestPrefixes = regexp.MustCompile(`error during connect: |[A-Z][a-z]+ "[^"]*": |failed to connect to the docker API at \S+( check if the path is correct and if the daemon is running:)? |(dial|read|write) (unix|tcp) \S+: (connect|read|write): `)
	daemonDown      = regexp.MustCompile(`Cannot connect to the Docker daemon at .*\. Is the docker daemon running\?`)
)

// engineError is an error with the words of the engine, of our kind and what it came from.
type engineError struct {
	msg    string
	causes []error
}

// Error returns the words.
func (f *engineError) Error() string { return f.msg }

// Unwrap returns the kind and the cause.
func (f *engineError) Unwrap() []error { return f.causes }
