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

// EntrypointCommand is the first argument by which this program is to be Enter.
const EntrypointCommand = "gate"

// What Enter returns if it executes nothing, as docker run and shells do.
const (
	exitNoProxy    = 125
	exitCannotExec = 126
	exitNotFound   = 127
)

const (
	proxyTimeout      = time.Minute // for the Gate, which is there a moment after the container, if the engine is well
	proxyPollInterval = 2 * time.Millisecond
)

// Entrypoint stands before the program of a container that has an allowlist: it waits until the Gate is
// there, which can be let into the network of a container only once that runs, and executes the
// program then, args, which is looked up as engines do. It returns only if there is none to execute: the
// status to exit with, after a sentence on w that says why.
func Entrypoint(args []string, w io.Writer) int {
	return waitAndExec(args, "127.0.0.1:"+strconv.Itoa(run.ProxyPort), proxyTimeout, w)
}

func waitAndExec(args []string, address string, timeout time.Duration, w io.Writer) int {
	fail := func(status int, format string, a ...any) int {
		_, _ = fmt.Fprintf(w, "muster: "+format+"\n", a...)
		return status
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for ; ; time.Sleep(proxyPollInterval) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = c.Close()
			break
		}
		if ctx.Err() != nil {
			return fail(exitNoProxy, "the proxy of the network allowlist is not there after %s: %v", timeout, err)
		}
	}
	// Whoever lets the container out looks for its process: before that nothing may end it.
	if len(args) == 0 || args[0] == "" {
		return fail(exitNotFound, "the image names no command to execute, and the job has no run")
	}
	status, err := execute(args)
	return fail(status, "%s cannot be executed in the container: %v", args[0], err)
}
