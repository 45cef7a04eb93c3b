package containerrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/shim/proctree"
)

// signalBase is added to a signal's number to make an exit code.
const signalBase = 128

const exitSIGKILL = signalBase + 9

// exitStatusOf returns the status of an exit code.
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
		x.OOM, x.Stopped = code != 0 && s.OOM, c.startFailure(code, s.Program)
	case !c.stopRequested():
		return x, err
	}
	return x, nil
}

// initExecFailed is the output of an init that could not start the program, with exit code 126 or 127; Podman's has 1 and no name. The engine
// has started the init and takes it for the program.
var initExecFailed = regexp.MustCompile(`^(?:\[FATAL tini \(\d+\)\] exec (.+) failed|ERROR \(catatonit:\d+\): failed to exec pid1): (.+)\n$`) //nolint:gochecknoglobals // a constant

// startFailure returns why the container's init could not start the program, nil if it could.
func (c *Container) startFailure(code int, program string) *run.Stopped {
	stderr := c.out[docker.Stderr-docker.Stdout]
	if code != 1 && code != 126 && code != 127 || c.out[0].total > 0 || stderr.total > headSize {
		return nil
	}
	m := initExecFailed.FindSubmatch(stderr.head)
	if m == nil {
		return nil
	}
	taskErr := startError(c.imageName(), fmt.Errorf("exec: %q: %s", cmp.Or(string(m[1]), program), strings.ToLower(string(m[2]))))
	if taskErr.Reason != muster.StartFailed {
		return nil
	}
	return &run.Stopped{Outcome: muster.AttemptFailed, Reason: taskErr.Reason, Message: taskErr.Message}
}

// Messages of engines and their runtimes for a program that cannot be started.
var (
	commandNotFound = regexp.MustCompile("exec(?:utable file)?:? [\"`]([^\"`]+)[\"`]:? .*(?:not found|no such file or directory)")                //nolint:gochecknoglobals // constants
	notExecutable   = regexp.MustCompile("exec(?:utable file)?:? [\"`]([^\"`]+)[\"`]:? .*(?:permission denied|is a directory|not an executable)") //nolint:gochecknoglobals // constants
	unknownUser     = regexp.MustCompile(`unable to find (user|group) ([^:\s]+)`)                                                                 //nolint:gochecknoglobals // constants
	badWorkdir      = regexp.MustCompile(`chdir to cwd \("([^"]*)"\)`)                                                                            //nolint:gochecknoglobals // constants
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
	if m := commandNotFound.FindStringSubmatch(msg); m != nil {
		hint := ""
		if strings.ContainsRune(m[1], ' ') {
			hint = ": write a command with arguments as a list, or as a text for a shell"
		}
		return run.Failf(muster.StartFailed, "%s: no such command in the image %s%s", m[1], image, hint)
	}
	if m := notExecutable.FindStringSubmatch(msg); m != nil {
		return run.Failf(muster.StartFailed, "%s cannot be executed in the image %s: it is not a program, or its user may not execute it", m[1], image)
	}
	if m := unknownUser.FindStringSubmatch(msg); m != nil {
		return run.Failf(muster.StartFailed, "no %s %s in the image %s", m[1], m[2], image)
	}
	if m := badWorkdir.FindStringSubmatch(msg); m != nil {
		return run.Failf(muster.StartFailed, "cannot start the program in the folder %s of the image %s: it does not exist, or its user may not enter it", m[1], image)
	}
	return run.Failf(muster.EngineFailed, "%w", err)
}
