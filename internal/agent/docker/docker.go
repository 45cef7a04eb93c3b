// Package docker is a client of container engines with the Docker Engine API: Docker and Podman. It knows nothing about tasks.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// Engine is one container engine. Its methods may be called concurrently and return when ctx ends. With a healthy engine they return within
// seconds unless documented otherwise.
type Engine struct {
	host       string
	api        atomic.Pointer[client.Client]
	apiVersion atomic.Value // the newest API version of the engine at the last Ping
}

// Kinds of errors. Every error of an Engine wraps at most one of them, or the cause with which ctx ended.
var (
	ErrUnreachable         = errors.New("the container engine does not answer")  // or closed the connection before its response
	ErrNotFound            = errors.New("no such object")                        // image or container
	ErrDenied              = errors.New("not allowed")                           // by the engine or a registry
	ErrConflict            = errors.New("in use, or its name is taken")          // by another object
	ErrRegistryUnreachable = errors.New("the registry cannot be reached")        // connection, name or certificate
	ErrRegistryFailed      = errors.New("the registry sent an invalid response") // an error, a truncated body, or a wrong hash
	ErrDiskFull            = errors.New("no space left on the engine's disk")
	ErrEngineFailed        = errors.New("the container engine failed") // as it reports itself; Podman also for invalid requests
)

// Open returns the engine at host, a URL such as unix:///var/run/docker.sock or tcp://10.0.0.5:2375. It does not connect.
func Open(host string) (*Engine, error) {
	if u, err := url.Parse(host); err != nil || u.Scheme == "" || !strings.Contains(host, "://") {
		return nil, fmt.Errorf("%q is not an address of a container engine: use a URL such as unix:///var/run/docker.sock", muster.HideCredentials(host))
	}
	e := &Engine{host: host}
	if err := e.reconnect(); err != nil {
		return nil, err
	}
	return e, nil
}

// reconnect makes the next request negotiate the API version: after a restart it may be another engine, which does not support the old
// version.
func (e *Engine) reconnect() error {
	api, err := client.New(client.WithHost(e.host), client.WithTLSClientConfigFromEnv(), client.WithUserAgent("muster"))
	if err != nil {
		return fmt.Errorf("the container engine at %s cannot be used: %w", muster.HideCredentials(e.host), err)
	}
	if prev := e.api.Swap(api); prev != nil {
		_ = prev.Close() // running requests continue
	}
	return nil
}

// Host returns the URL of the engine.
func (e *Engine) Host() string { return e.host }

// Close closes idle connections.
func (e *Engine) Close() error { return e.api.Load().Close() }

// wrapError adds the kind of an engine's error, and doing, what failed, such as "the image cannot be fetched".
func (e *Engine) wrapError(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	var kind error
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
	case errdefs.IsConflict(err), strings.Contains(err.Error(), "that name is already in use"), strings.Contains(err.Error(), "device or resource busy"): // Podman 4 answers 500
		kind = ErrConflict
	case errdefs.IsInternal(err), errdefs.IsUnavailable(err):
		kind = ErrEngineFailed
	}
	return newError(doing, err, kind)
}

// connClosed reports whether err means that the engine closed the connection or is not running.
func connClosed(err error) bool {
	closed := []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE}
	return slices.ContainsFunc(closed, func(kind error) bool { return errors.Is(err, kind) })
}

// newError returns an error with the message of err. kind may be nil.
func newError(doing string, err, kind error) error {
	return &engineError{msg: doing + ": " + cleanMessage(err), causes: errors.Join(kind, err)}
}

// cleanMessage removes the client's request from the message of err. It does not change messages of the engine itself.
func cleanMessage(err error) string {
	text := strings.TrimPrefix(strings.TrimSpace(err.Error()), "Error response from daemon: ")
	if _, isURLError := errors.AsType[*url.Error](err); isURLError || client.IsErrConnectionFailed(err) {
		text = requestPrefixes.Get().ReplaceAllString(text, "")
		text = daemonDown.Get().ReplaceAllString(text, "connection refused")
		text = strings.ReplaceAll(text, ".\n* ", "; ")
	}
	switch text {
	case io.EOF.Error(), io.ErrUnexpectedEOF.Error():
		return "the connection was closed"
	default:
		return text
	}
}

// The client's descriptions of its requests in error messages.
var (
	requestPrefixes = lazyregexp.New(`error during connect: |[A-Z][a-z]+ "[^"]*": |failed to connect to the docker API at \S+( check if the path is correct and if the daemon is running:)? |(dial|read|write) (unix|tcp) \S+: (connect|read|write): `)
	daemonDown      = lazyregexp.New(`Cannot connect to the Docker daemon at .*\. Is the docker daemon running\?`)
)

type engineError struct {
	msg    string
	causes error // the kind, if any, and the original error
}

// Error returns the message.
func (f *engineError) Error() string { return f.msg }

// Unwrap returns the kind and the original error.
func (f *engineError) Unwrap() error { return f.causes }
