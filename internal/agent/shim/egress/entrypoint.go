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

// Entrypoint runs before the program of a container with an allowlist: it waits for the proxy, which can enter the network of a container only
// once that runs, and then executes the program, args, which it looks up as engines do. It returns only if that fails: the exit code, after a
// message on w.
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
			return fail(exitNoProxy, "the proxy of the network allowlist did not start within %s: %v", timeout, err)
		}
	}
	// The proxy's side looks for this process, which must not end before.
	if len(args) == 0 || args[0] == "" {
		return fail(exitNotFound, "the image has no command to execute, and the job has no run")
	}
	status, err := execute(args)
	return fail(status, "cannot execute %s in the container: %v", args[0], err)
}
