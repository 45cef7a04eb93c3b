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
	host string
	api  atomic.Pointer[client.Client]
	said atomic.Value // the newest version of the API that it spoke at the last Ping
}

// Why an engine did not do what it was asked. Every error of an Engine wraps at
// most one of these, or the cause with which its ctx ended.
var (
	ErrDown    = errors.New("the container engine does not answer")    // or went away before it had answered
	ErrMissing = errors.New("no such object")                          // image or container
	ErrDenied  = errors.New("not allowed")                             // by the engine or a registry
	ErrTaken   = errors.New("in use, or its name is taken")            // by another object
	ErrReach   = errors.New("the registry cannot be reached")          // it is down, or its name is unknown, or its certificate is
	ErrBroken  = errors.New("the registry sends what cannot be right") // it fails, or ends too early, or its bytes have another hash
	ErrFull    = errors.New("no space left on the engine's disk")
	ErrFault   = errors.New("the container engine failed") // by what it says itself, which Podman also does of mistakes in a request
)

// Open returns the engine at host, a URL such as unix:///var/run/docker.sock or
// tcp://10.0.0.5:2375. It does not ask whether there is one.
func Open(host string) (*Engine, error) {
	if u, err := url.Parse(host); err != nil || u.Scheme == "" {
		return nil, fmt.Errorf("%q is no address of a container engine: write one such as unix:///var/run/docker.sock", host)
	}
	e := &Engine{host: host}
	if err := e.renew(); err != nil {
		return nil, err
	}
	return e, nil
}

// renew has the version of the API agreed upon at the next question: an engine that was away may be another
// one, which does not take the old version any more.
func (e *Engine) renew() error {
	api, err := client.New(client.WithHost(e.host), client.WithTLSClientConfigFromEnv(), client.WithUserAgent("muster"))
	if err != nil {
		return fmt.Errorf("the container engine at %s cannot be used: %w", e.host, err)
	}
	if before := e.api.Swap(api); before != nil {
		_ = before.Close() // what is under way goes on
	}
	return nil
}

// Host is where the engine is.
func (e *Engine) Host() string { return e.host }

// Close ends what is kept of connections.
func (e *Engine) Close() error { return e.api.Load().Close() }

// failed puts an error of the engine into our words: doing says what was tried, such as "the
// image cannot be fetched".
func (e *Engine) failed(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	kind := error(nil)
	switch {
	case ctx.Err() != nil:
		kind = context.Cause(ctx)
	case client.IsErrConnectionFailed(err), closed(err):
		kind = ErrDown
	case strings.Contains(err.Error(), "no space left on device"):
		kind = ErrFull
	case errdefs.IsNotFound(err):
		kind = ErrMissing
	case errdefs.IsPermissionDenied(err), errdefs.IsUnauthorized(err):
		kind = ErrDenied
	case errdefs.IsConflict(err), strings.Contains(err.Error(), "that name is already in use"): // Podman 4 answers 500
		kind = ErrTaken
	case errdefs.IsInternal(err), errdefs.IsUnavailable(err):
		kind = ErrFault
	}
	return saying(doing, err, kind)
}

// saying is an error with the words of err, and of a kind unless that is nil.
func saying(doing string, err, kind error) error {
	said := doing + ": " + words(err)
	if kind == nil {
		return &failure{said: said, of: []error{err}}
	}
	return &failure{said: said, of: []error{kind, err}}
}

// words is what err says to people who did not make the request. What the engine itself says is left as it is,
// also where it names requests of its own.
func words(err error) string {
	text := strings.TrimPrefix(strings.TrimSpace(err.Error()), "Error response from daemon: ")
	if _, asked := errors.AsType[*url.Error](err); asked || client.IsErrConnectionFailed(err) {
		text = requests.ReplaceAllString(text, "")
		text = nobody.ReplaceAllString(text, "nobody takes connections there")
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
	requests = regexp.MustCompile(`error during connect: |[A-Z][a-z]+ "[^"]*": |failed to connect to the docker API at \S+( check if the path is correct and if the daemon is running:)? |(dial|read|write) (unix|tcp) \S+: (connect|read|write): `)
	nobody   = regexp.MustCompile(`Cannot connect to the Docker daemon at .*\. Is the docker daemon running\?`)
)

// failure is an error with the words of the engine, of our kind and what it came from.
type failure struct {
	said string
	of   []error
}

// Error returns the words.
func (f *failure) Error() string { return f.said }

// Unwrap returns the kind and the cause.
func (f *failure) Unwrap() []error { return f.of }
