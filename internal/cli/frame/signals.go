package frame

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// StopSignals are the signals that ask a program to end.
func StopSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// Interruptible returns a context that ends with the first SIGINT or SIGTERM.
// The second one ends the program at once.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, StopSignals()...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
