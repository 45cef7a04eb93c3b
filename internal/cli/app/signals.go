package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// StopSignals returns the signals that request a shutdown.
func StopSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }

// ShutdownContexts returns a context that ends on the first SIGINT or SIGTERM, and one that ends on the second.
// The third one kills the program.
func ShutdownContexts(ctx context.Context) (first, second context.Context, release context.CancelFunc) {
	return InterceptedContexts(ctx, func() bool { return false })
}

// InterceptedContexts is ShutdownContexts, but calls intercept at the first signal. If it returns true, the first context does not end.
func InterceptedContexts(ctx context.Context, intercept func() bool) (first, second context.Context, release context.CancelFunc) {
	signaled, stopFirst := signal.NotifyContext(ctx, StopSignals()...)
	first, cancelFirst := context.WithCancel(ctx)
	second, cancelSecond := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(signaled, func() {
		next, stopSecond := signal.NotifyContext(second, StopSignals()...)
		stopFirst()
		context.AfterFunc(next, func() {
			stopSecond()
			cancelSecond()
			cancelFirst()
		})
		if first.Err() != nil || ctx.Err() != nil || !intercept() {
			cancelFirst()
		}
	})
	return first, second, func() {
		cancelFirst()
		stopFirst()
		cancelSecond()
	}
}

// WaitForResponse runs a request that the first signal does not interrupt, because its outcome would be unknown.
// If it still runs a second after the signal, a message says how to interrupt it.
func (a *App) WaitForResponse(first context.Context, request func() error) error {
	done, notified := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(first, func() {
		defer close(notified)
		select {
		case <-done:
		case <-time.After(time.Second):
			a.Messagef("waiting for the response of the server; press Ctrl-C again to exit now")
		}
	})
	err := request()
	close(done)
	if !stop() {
		<-notified
	}
	return err
}

// SignalContext returns a context that ends on the first SIGINT or SIGTERM. The second one kills the program.
func SignalContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, StopSignals()...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
