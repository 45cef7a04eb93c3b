package host

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/cli/frame"
	"github.com/muster-dev/muster/internal/work"
)

// aboutSignals is said of up and worker alike.
const aboutSignals = "The first SIGINT or SIGTERM lets running tasks end within --shutdown-grace, the second hands them back at once. " +
	"SIGUSR2 starts what the program's file has become in its place, and running tasks go on."

// upgrade is what can become of this process, and when it is asked to.
type upgrade struct {
	frame.Program
	asked <-chan os.Signal
}

// upgradable runs a worker until it ends. When it was asked to make room for its next
// version it becomes that, with the secrets that were taken; it goes on as it is if that fails.
func upgradable(log *slog.Logger, taken []*frame.Secret, do func(*upgrade) error) error {
	self, err := frame.ThisProgram(taken...)
	if err != nil {
		return err
	}
	asked, release := frame.OnUpgrade()
	defer release()
	for {
		if err := do(&upgrade{self, asked}); !errors.Is(err, run.ErrDetach) {
			return err
		}
		log.Error("the upgrade failed; going on as before", slog.Any("error", self.Become()))
	}
}

// watch has the worker leave its tasks when the program is to be upgraded, and can
// be. It returns when ctx ends.
func (u *upgrade) watch(ctx context.Context, w *work.Worker, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.asked:
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
