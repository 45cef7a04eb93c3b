package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/sdnotify"
)

// UnitVariable names the unit of systemd that this process is the service of. With it, a restart of the unit keeps running tasks.
const UnitVariable = "MUSTER_SYSTEMD_UNIT"

// Time that a service may take to stop, whatever the timeout of its unit: a worker needs it after the grace of its tasks.
const (
	serverStopLimit = time.Minute
	workerStopLimit = 5 * time.Minute
)

// withNotifier calls fn with the notifier of this process, and reports to systemd until fn returns.
func withNotifier(ctx context.Context, log *slog.Logger, fn func(*sdnotify.Notifier) error) error {
	notifier, err := sdnotify.FromEnv()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // it reports also during a shutdown
	var reports sync.WaitGroup
	reports.Go(func() { notifier.Run(ctx, log) })
	defer reports.Wait()
	defer stop()
	return fn(notifier)
}

// restarts receives restarts of this service by systemd, which leave running tasks to the next process. Other reasons to stop, such as
// systemctl stop or a shutdown of the machine, drain the worker.
type restarts chan struct{}

const (
	systemctlTimeout = 2 * time.Second
	leaveTimeout     = time.Second // for the worker to receive a restart; it does not while it starts or ends
)

// intercept handles the first SIGTERM. It reports whether the worker leaves its tasks.
func (r restarts) intercept() bool {
	if !restarting(os.Getenv(UnitVariable)) {
		return false
	}
	select {
	case r <- struct{}{}:
		return true
	case <-time.After(leaveTimeout):
		return false
	}
}

// restarting reports whether systemd is restarting a unit, false if that is unknown.
func restarting(unit string) bool {
	if unit == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), systemctlTimeout)
	defer cancel()
	args := []string{"list-jobs", "--plain", "--no-legend", "--full"}
	if os.Getenv("MANAGERPID") != "" { // of the user's service manager
		args = append(args, "--user")
	}
	cmd := exec.CommandContext(ctx, "systemctl", args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) >= 3 && f[1] == unit && f[2] == "restart" { // number, unit, type, state
			return true
		}
	}
	return false
}
