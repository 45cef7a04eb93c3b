package api

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
)

// A client who leaves frees its place among the specs that are parsed, and in the queue for it, at once.
func TestParseEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		s := newServer(Config{
			LinkSocket: http.NotFoundHandler(), LinkPoll: http.NotFoundHandler(),
			Parse: func(ctx context.Context, _ []byte, _ string, _ func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, error) {
				begun++
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		spec := make([]byte, muster.MaxSpecSize)
		start := time.Now()
		type client struct {
			leave context.CancelFunc
			left  chan struct{}
		}
		clients := make([]client, 3)
		for i := range clients {
			ctx, cancel := context.WithCancel(t.Context())
			clients[i] = client{cancel, make(chan struct{})}
			go func() {
				defer close(clients[i].left)
				if _, err := s.parse(ctx, spec); err == nil {
					t.Errorf("client %d has an answer", i)
				}
			}()
			synctest.Wait()
		}
		if begun != 1 {
			t.Fatalf("%d specs of 1 MB are parsed at once, want 1", begun)
		}
		clients[1].leave() // the queue
		<-clients[1].left
		clients[0].leave() // a parse
		<-clients[0].left
		synctest.Wait()
		if begun != 2 {
			t.Errorf("%d parses began after the first ended, want 2", begun)
		}
		clients[2].leave()
		<-clients[2].left
		if d := time.Since(start); d > 0 {
			t.Errorf("it took %s", d)
		}
	})
}

// Small specs are parsed beside each other, but not without limit: some cost a thousand times their size.
func TestSmallSpecsAreParsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		s := newServer(Config{
			LinkSocket: http.NotFoundHandler(), LinkPoll: http.NotFoundHandler(),
			Parse: func(ctx context.Context, _ []byte, _ string, _ func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, error) {
				begun.Add(1)
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		for range 100 {
			go func() { _, _ = s.parse(ctx, make([]byte, 500)) }()
			synctest.Wait()
		}
		if n := begun.Load(); n < 10 || n > 20 {
			t.Errorf("%d small specs are parsed at once", n)
		}
		cancel()
		synctest.Wait()
	})
}
