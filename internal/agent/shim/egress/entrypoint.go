package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/muster-dev/muster/internal/agent/run"
)

// EntrypointCommand is the first argument with which this program runs Entrypoint.
const EntrypointCommand = "gate"

// Exit codes of Entrypoint if it executes no program, as those of docker run and shells.
const (
	exitNoProxy    = 125
	exitCannotExec = 126
	exitNotFound   = 127
)

const (
	proxyTimeout      = time.Minute // for the proxy, which usually starts just after the container
	proxyPollInterval = 2 * time.Millisecond
)

// EntrypointOptions are what Entrypoint does before it executes the program.
type EntrypointOptions struct {
	Proxy bool   // wait for the proxy, which can enter the network of a container only once that runs
	Stdin string // path of the file that becomes the standard input; "" for none
}

// Args returns the arguments with which this program runs Entrypoint, before those of the container's program.
func (o EntrypointOptions) Args() []string {
	proxy := ""
	if o.Proxy {
		proxy = "proxy"
	}
	return []string{EntrypointCommand, proxy, o.Stdin}
}

// Entrypoint runs before the program of a container. args are those of EntrypointOptions without the first, and the program, which it looks up as
// engines do. It returns only if that fails: the exit code, after a message on w.
func Entrypoint(args []string, w io.Writer) int {
	if len(args) < optionArgs {
		return reportFailure(w, exitCannotExec, "the container's entrypoint lacks its arguments")
	}
	if file := args[1]; file != "" {
		if err := replaceStdin(file); err != nil {
			return reportFailure(w, exitCannotExec, "cannot open standard input: %v", err)
		}
	}
	program := args[optionArgs:]
	if args[0] == "" {
		return executeProgram(program, w)
	}
	return waitAndExec(program, "127.0.0.1:"+strconv.Itoa(run.ProxyPort), proxyTimeout, w)
}

// optionArgs is the number of arguments before the program.
const optionArgs = 2

func reportFailure(w io.Writer, status int, format string, a ...any) int {
	_, _ = fmt.Fprintf(w, "muster: "+format+"\n", a...)
	return status
}

func waitAndExec(args []string, address string, timeout time.Duration, w io.Writer) int {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for ; ; time.Sleep(proxyPollInterval) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = c.Close()
			break
		}
		if ctx.Err() != nil {
			return reportFailure(w, exitNoProxy, "the proxy of the network allowlist did not start within %s: %v", timeout, err)
		}
	}
	// The proxy's side looks for this process, which must not end before.
	return executeProgram(args, w)
}

func executeProgram(args []string, w io.Writer) int {
	if len(args) == 0 || args[0] == "" {
		return reportFailure(w, exitNotFound, "the image has no command to execute, and the job has no run")
	}
	status, err := execute(args)
	return reportFailure(w, status, "cannot execute %s in the container: %v", args[0], err)
}
