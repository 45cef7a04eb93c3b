package containerrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// signalBase is added to a signal's number to make an exit code.
const signalBase = 128

const exitSIGKILL = signalBase + 9

func exitStatusOf(code int) proctree.ExitStatus {
	return proctree.ExitStatus{Code: code, Signal: signalName(code), Killed: code == exitSIGKILL}
}

// signalName returns the name of the signal of an exit code, for signals that end a program. A container's signals are those of Linux, on any
// system.
func signalName(code int) string {
	names := [...]string{
		1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 10: "SIGUSR1",
		11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
	}
	if n := code - signalBase; n > 0 && n < len(names) {
		return names[n]
	}
	return ""
}

// exitStatus returns how a container ended whose exit code the engine returned. An error says that the engine does not respond any more: an
// engine that shuts down accepts no connections, ends its containers, and reports their ends over existing connections.
func (c *Container) exitStatus(code int) (proctree.ExitStatus, error) {
	x := exitStatusOf(code)
	ctx, cancel := context.WithTimeout(c.ctx, c.timeouts.Call)
	defer cancel()
	e, err := docker.Open(c.spec.Engine) // over a new connection
	if err != nil {
		return x, err
	}
	defer func() { _ = e.Close() }()
	s, err := e.State(ctx, c.spec.ID)
	switch {
	case err == nil && s.Removing && !c.stopRequested():
		return *engineFailure(msgRemoved), nil
	case err == nil:
		x.OOM = code != 0 && s.OOM
		if e := c.startFailure(code, s.Program); e != nil {
			x.Code = cmp.Or(e.ExitCode, code)
			x.Stopped = &run.Stopped{Outcome: muster.AttemptFailed, Reason: e.Reason, Message: e.Message}
		}
	case !c.stopRequested():
		return x, err
	}
	return x, nil
}

// initExecFailed is the output of an init that could not start the program, with exit code 126 or 127; Podman's has 1 and no name. The engine
// has started the init and takes it for the program.
var initExecFailed = lazyregexp.New(`^(?:\[FATAL tini \(\d+\)\] exec (.+) failed|ERROR \(catatonit:\d+\): failed to exec pid1): (.+)\n$`) //nolint:gochecknoglobals // a constant

// startFailure returns why the container's init could not start the program, nil if it could.
func (c *Container) startFailure(code int, program string) *run.TaskError {
	stderr := c.out[docker.Stderr-docker.Stdout]
	if code != 1 && code != 126 && code != 127 || c.out[0].total > 0 || stderr.total > headSize {
		return nil
	}
	m := initExecFailed.Get().FindSubmatch(stderr.head)
	if m == nil {
		return nil
	}
	taskErr := startError(c.imageName(), fmt.Errorf("exec: %q: %s", cmp.Or(string(m[1]), program), strings.ToLower(string(m[2]))))
	if taskErr.Reason != muster.StartFailed {
		return nil
	}
	return taskErr
}

// Messages of engines and their runtimes for a program that cannot be started.
var (
	commandNotFound = lazyregexp.New("exec(?:utable file)?:? [\"`]([^\"`]+)[\"`]:? .*(?:not found|no such file or directory)")                //nolint:gochecknoglobals // constants
	notExecutable   = lazyregexp.New("exec(?:utable file)?:? [\"`]([^\"`]+)[\"`]:? .*(?:permission denied|is a directory|not an executable)") //nolint:gochecknoglobals // constants
	unknownUser     = lazyregexp.New(`unable to find (user|group) ([^:\s]+)`)                                                                 //nolint:gochecknoglobals // constants
	badWorkdir      = lazyregexp.New(`chdir to cwd \("([^"]*)"\)`)                                                                            //nolint:gochecknoglobals // constants
)

// imageName returns the image as the user wrote it.
func (c *Container) imageName() string { return cmp.Or(c.spec.ImageName, c.spec.Image) }

// startError explains an engine's error.
func startError(image string, err error) *run.TaskError {
	msg := err.Error()
	if errors.Is(err, docker.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) {
		return run.Failf(muster.EngineFailed, "%w", err)
	}
	if errors.Is(err, docker.ErrDiskFull) {
		return run.Failf(muster.DiskFull, "%w", err)
	}
	if m := commandNotFound.Get().FindStringSubmatch(msg); m != nil {
		hint := ""
		if strings.ContainsRune(m[1], ' ') {
			hint = ": write a command with arguments as a list, or as a text for a shell"
		}
		return run.StartFailf(run.ExitNotFound, "%s: no such command in the image %s%s", m[1], image, hint)
	}
	if m := notExecutable.Get().FindStringSubmatch(msg); m != nil {
		return run.StartFailf(run.ExitNotExecutable, "%s cannot be executed in the image %s: it is not a program, or its user may not execute it", m[1], image)
	}
	if m := unknownUser.Get().FindStringSubmatch(msg); m != nil {
		return run.Failf(muster.StartFailed, "no %s %s in the image %s", m[1], m[2], image)
	}
	if m := badWorkdir.Get().FindStringSubmatch(msg); m != nil {
		return run.Failf(muster.StartFailed, "cannot start the program in the folder %s of the image %s: it does not exist, or its user may not enter it", m[1], image)
	}
	return run.Failf(muster.EngineFailed, "%w", err)
}

// outage is what is known about an unreachable engine.
type outage struct {
	waitResult
	engineDown bool // it could not be reached; else only the connection broke
	crashed    bool // nothing listens on its socket, which a stopped engine removes
	crashKnown bool // crashed is known: later the socket is the next engine's
}

// reconnect finds the container again after an outage of its engine. It returns the source of its further output, or how it ended.
func (c *Container) reconnect(res waitResult) (*outputSource, *proctree.ExitStatus) {
	o := &outage{waitResult: res}
	deadline := time.Now().Add(c.timeouts.Outage)
	defer func() {
		if o.engineDown {
			c.handler.OnWaiting("")
		}
	}()
	for delay := c.timeouts.RetryDelay; ; delay = c.timeouts.nextDelay(delay) {
		src, x, err := c.inspect(o)
		switch {
		case err == nil:
			if o.engineDown && src != nil {
				c.handler.LogLine("the container engine is available again, the task continues")
			}
			return src, x
		case c.ctx.Err() != nil:
			return nil, engineFailure(context.Cause(c.ctx).Error())
		case errors.Is(err, docker.ErrNotFound) && c.stopRequested():
			x := exitStatusOf(exitSIGKILL)
			return nil, &x
		case errors.Is(err, docker.ErrNotFound):
			return nil, engineFailure(msgRemoved)
		case time.Now().After(deadline):
			return nil, engineFailure(fmt.Sprintf("the container engine at %s was unreachable for %s", c.spec.Engine, c.timeouts.Outage))
		case !o.engineDown:
			o.engineDown = true
			c.log.Warn("container engine unreachable", slog.Any("error", err))
			c.handler.LogLine("the container engine does not respond: waiting for it; the task may continue meanwhile")
			c.handler.OnWaiting("waiting for the container engine")
		}
		if !o.crashKnown {
			o.crashed, o.crashKnown = c.socketAbandoned()
		}
		select {
		case <-time.After(delay):
		case <-c.ctx.Done():
		}
	}
}

// socketAbandoned reports whether an engine's socket exists and nothing listens: a stopped engine removes it. Neither is known while something
// listens.
func (c *Container) socketAbandoned() (abandoned, known bool) {
	path, local := strings.CutPrefix(c.spec.Engine, "unix://")
	if !local {
		return false, false
	}
	conn, err := (&net.Dialer{Timeout: c.timeouts.Call}).DialContext(c.ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	abandoned = errors.Is(err, syscall.ECONNREFUSED)
	return abandoned, abandoned || errors.Is(err, fs.ErrNotExist)
}

// inspect asks the engine for the container over a new connection: it may be another engine, of another version. It returns either the source
// of the container's output, or how it ended.
func (c *Container) inspect(o *outage) (*outputSource, *proctree.ExitStatus, error) {
	e, err := docker.Open(c.spec.Engine)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	prev := c.engine
	c.engine = e
	c.mu.Unlock()
	_ = prev.Close() // it has no connections whose close could fail
	ctx, cancel := context.WithTimeout(c.ctx, c.timeouts.Call)
	defer cancel()
	s, err := e.State(ctx, c.spec.ID)
	if err != nil {
		return nil, nil, err
	}
	info, err := e.Info(ctx)
	if err != nil {
		return nil, nil, err
	}
	out, err := e.Logs(c.ctx, c.spec.ID, s.Running, c.timeouts.Call)
	switch {
	case err == nil:
		src := &outputSource{Output: out, replay: c.newReplay(o.at)}
		if s.Running {
			return src, nil, nil
		}
		c.handler.OnExit()
		c.copyRemaining(src)
	case engineUnavailable(err):
		return nil, nil, err
	default:
		c.handler.LogLine("cannot read what the task printed meanwhile: " + err.Error())
		if s.Running {
			out, err := e.Attach(ctx, c.spec.ID)
			return &outputSource{Output: out}, nil, err
		}
	}
	return nil, c.classifyExit(o, s, info.LiveRestore || info.Name == "podman"), nil // Podman's service holds no containers
}

// engineUnavailable reports whether an error means that the engine is unreachable, or slow.
func engineUnavailable(err error) bool {
	return errors.Is(err, docker.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// copyRemaining copies the remaining output of an exited container.
func (c *Container) copyRemaining(src *outputSource) {
	timer := time.AfterFunc(c.timeouts.Drain, func() { _ = src.Close() })
	defer timer.Stop()
	defer func() { _ = src.Close() }()
	if err := c.copyOutput(src); err != nil {
		c.handler.LogLine("the end of the task's output may be missing: " + err.Error())
	}
}

// classifyExit returns how a container ended that has exited. An engine that shuts down ends its containers; their exits are not their own
// then, whatever the exit code.
func (c *Container) classifyExit(o *outage, s *docker.State, liveRestore bool) *proctree.ExitStatus {
	if s.Removing && !c.stopRequested() {
		return engineFailure(msgRemoved)
	}
	x := exitStatusOf(s.ExitCode)
	x.OOM = s.ExitCode != 0 && s.OOM
	earliest := o.at.Add(-outputGrace) // this process may have noticed the end of the connections late
	before := o.at
	if x.Signal != "" {
		before = earliest
	}
	switch {
	case c.stopRequested(), !o.engineDown, liveRestore, x.OOM,
		o.crashed && (o.exited || x.Signal == ""), // a crashed engine stops no containers
		!o.exited && s.Finished.Before(before):
		if o.engineDown && !o.exited && s.Finished.After(earliest) {
			c.handler.LogLine("the task ended while the container engine was unreachable: what it printed meanwhile may be missing")
		}
		return &x
	}
	return engineFailure("the container engine was stopped and ended the task's container")
}

const msgRemoved = "the task's container was removed from the engine while it ran"

// engineFailure is the status of an end that the engine caused: engine_failed. Only the server declares an attempt lost.
func engineFailure(message string) *proctree.ExitStatus {
	return &proctree.ExitStatus{Code: -1, Stopped: &run.Stopped{Outcome: muster.AttemptFailed, Reason: muster.EngineFailed, Message: message}}
}
