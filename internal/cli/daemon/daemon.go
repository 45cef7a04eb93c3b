// Package host has the commands that make this machine a server, a worker, or both, and
// the one that says what it would offer. The options of a worker are the same for all
// that run one or tell about one.
package daemon

import (
	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/app"
)

// ShimCommand is the word with which a worker starts this program as its shim: see package
// shim. It is no command among the others, so that it starts at once.
const ShimCommand = "shim"

// runner is one run of the program.
type runner struct{ *app.App }

// Commands returns muster up, server, worker and probe. dropIns are below worker.
func Commands(base *app.App, dropIns ...*cli.Command) []*cli.Command {
	a := &runner{base}
	server := a.serverCommand()
	addDialectHelp(server)
	return []*cli.Command{a.upCommand(), server, a.workerCommand(dropIns), a.probeCommand()}
}
