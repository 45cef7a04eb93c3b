package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// StopSignals are the signals that ask a program to end.
func StopSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// ShutdownContexts returns a context that ends with the first SIGINT or SIGTERM and one
// that ends with the second. The third one ends the program at once.
func ShutdownContexts(ctx context.Context) (first, second context.Context, release context.CancelFunc) {
	first, stopFirst := signal.NotifyContext(ctx, StopSignals()...)
	second, cancelSecond := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(first, func() {
		next, stopSecond := signal.NotifyContext(second, StopSignals()...)
		stopFirst()
		context.AfterFunc(next, func() {
			stopSecond()
			cancelSecond()
		})
	})
	return first, second, func() {
		stopFirst()
		cancelSecond()
	}
}

// WaitForResponse makes a request that the first signal does not cut off, since nobody would know whether it was done.
// It tells a user who still waits a second after that how to end it.
func (a *App) WaitForResponse(first context.Context, request func() error) error {
	done, notified := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(first, func() {
		defer close(notified)
		select {
		case <-done:
		case <-time.After(time.Second):
			a.Messagef("waiting for the server's answer, which says whether it was done; press Ctrl-C again not to wait")
		}
	})
	err := request()
	close(done)
	if !stop() {
		<-notified
	}
	return err
}

// SignalContext returns a context that ends with the first SIGINT or SIGTERM.
// The second one ends the program at once.
func SignalContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, StopSignals()...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
