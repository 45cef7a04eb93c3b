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

// exitStatusOf tells what an exit code says.
func exitStatusOf(code int) proctree.ExitStatus {
	return proctree.ExitStatus{Code: code, Signal: signalName(code), Killed: code == exitSIGKILL}
}

// signalName is the name of the signal that ends a program with an exit code. A container's programs
// are Linux', whatever this machine is. Signals are not in it that end no program by themselves.
func signalName(code int) string {
	switch code - signalBase {
	case 1:
		return "SIGHUP"
	case 2:
		return "SIGINT"
	case 3:
		return "SIGQUIT"
	case 4:
		return "SIGILL"
	case 5:
		return "SIGTRAP"
	case 6:
		return "SIGABRT"
	case 7:
		return "SIGBUS"
	case 8:
		return "SIGFPE"
	case 9:
		return "SIGKILL"
	case 10:
		return "SIGUSR1"
	case 11:
		return "SIGSEGV"
	case 12:
		return "SIGUSR2"
	case 13:
		return "SIGPIPE"
	case 14:
		return "SIGALRM"
	case 15:
		return "SIGTERM"
	case 24:
		return "SIGXCPU"
	case 25:
		return "SIGXFSZ"
	case 31:
		return "SIGSYS"
	default:
		return ""
	}
}

// exitStatus tells how a container ended of which the engine told the exit code. An error says that the engine
// does not answer any more: one that is stopped takes no more connections, then ends its containers, and
// tells of their ends over those that it has.
func (c *Container) exitStatus(code int) (proctree.ExitStatus, error) {
	x := exitStatusOf(code)
	ctx, cancel := context.WithTimeout(c.ctx, c.timeouts.Call)
	defer cancel()
	e, err := docker.Open(c.spec.Engine) // over a connection of its own
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

// initExecFailed is what an init says in place of all output, with the exit codes 126 or 127, and Podman's with 1 and no name: the
// engine has started that, and takes it for the program.
var initExecFailed = regexp.MustCompile(`^(?:\[FATAL tini \(\d+\)\] exec (.+) failed|ERROR \(catatonit:\d+\): failed to exec pid1): (.+)\n$`) //nolint:gochecknoglobals // a constant

// startFailure says why the container's program was not started by its init, nil if it was.
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

// What engines and their runtimes say when a program cannot be started.
var (
	commandNotFound = regexp.MustCompile("exec(?:utable file)?:? [\"`]([^\"`]+)[\"`]:? .*(?:not found|no such file or directory)")                //nolint:gochecknoglobals // constants
	notExecutable   = regexp.MustCompile("exec(?:utable file)?:? [\"`]([^\"`]+)[\"`]:? .*(?:permission denied|is a directory|not an executable)") //nolint:gochecknoglobals // constants
	unknownUser     = regexp.MustCompile(`unable to find (user|group) ([^:\s]+)`)                                                                 //nolint:gochecknoglobals // constants
	badWorkdir      = regexp.MustCompile(`chdir to cwd \("([^"]*)"\)`)                                                                            //nolint:gochecknoglobals // constants
)

// imageName is what people call the image.
func (c *Container) imageName() string { return cmp.Or(c.spec.ImageName, c.spec.Image) }

// startError turns what an engine said into a sentence.
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
			hint = ": a command with its arguments is a list, or a text that a shell runs"
		}
		return run.Failf(muster.StartFailed, "%s: no such command in the image %s%s", m[1], image, hint)
	}
	if m := notExecutable.FindStringSubmatch(msg); m != nil {
		return run.Failf(muster.StartFailed, "%s cannot be executed in the image %s: it is no program, or its user may not execute it", m[1], image)
	}
	if m := unknownUser.FindStringSubmatch(msg); m != nil {
		return run.Failf(muster.StartFailed, "there is no %s %s in the image %s", m[1], m[2], image)
	}
	if m := badWorkdir.FindStringSubmatch(msg); m != nil {
		return run.Failf(muster.StartFailed, "the program cannot be started in the folder %s of the image %s: it is not there, or its user may not enter it", m[1], image)
	}
	return run.Failf(muster.EngineFailed, "%w", err)
}
