//go:build unix

package app

import (
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/testkit"
)

// TestInterceptedContexts sends signals to this process: the first may be intercepted, the second never.
func TestInterceptedContexts(t *testing.T) {
	intercepted := make(chan struct{})
	first, second, release := InterceptedContexts(t.Context(), func() bool {
		close(intercepted)
		return true
	})
	defer release()
	testkit.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	<-intercepted
	if err := first.Err(); err != nil {
		t.Errorf("after an intercepted signal: %v", err)
	}
	testkit.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	for _, ctx := range []<-chan struct{}{first.Done(), second.Done()} {
		select {
		case <-ctx:
		case <-time.After(time.Minute):
			t.Fatal("a second signal has no effect")
		}
	}

	first, second, release = ShutdownContexts(t.Context())
	testkit.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	<-first.Done()
	if err := second.Err(); err != nil {
		t.Errorf("after one signal: %v", err)
	}
	release()
	<-second.Done()
}
