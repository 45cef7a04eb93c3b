package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/workerd"
)

// signalsHelp is said of up and worker alike.
const signalsHelp = "The first SIGINT or SIGTERM lets running tasks end within --shutdown-grace, the second hands them back at once. " +
	"SIGUSR2 starts what the program's file has become in its place, and running tasks go on."

// upgrader is what can become of this process, and when it is asked to.
type upgrader struct {
	app.Program
	requests <-chan os.Signal
}

// runUpgradable runs a worker until it ends. When it was asked to make room for its next
// version it becomes that, with the secrets that were taken; it goes on as it is if that fails.
func runUpgradable(log *slog.Logger, secrets []*app.Secret, fn func(*upgrader) error) error {
	self, err := app.CurrentProgram(secrets...)
	if err != nil {
		return err
	}
	requests, release := app.NotifyUpgrade()
	defer release()
	for {
		if err := fn(&upgrader{self, requests}); !errors.Is(err, run.ErrDetach) {
			return err
		}
		log.Error("the upgrade failed; going on as before", slog.Any("error", self.Exec()))
	}
}

// watchRequests has the worker leave its tasks when the program is to be upgraded, and can
// be. It returns when ctx ends.
func (u *upgrader) watchRequests(ctx context.Context, w *workerd.Worker, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.requests:
		}
		version, err := u.Check(ctx)
		if err != nil {
			log.Error("the upgrade is refused; going on as before", slog.Any("error", err))
			continue
		}
		log.Info("upgrading in place", slog.String("to", version))
		w.Detach()
	}
}
