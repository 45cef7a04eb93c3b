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

// A client that leaves releases its parse budget, or its place in the queue for it, at once.
func TestParseStopsWhenTheClientDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := 0
		s := newServer(Config{
			LinkSocket: http.NotFoundHandler(), LinkPoll: http.NotFoundHandler(),
			Parse: func(ctx context.Context, _ []byte, _ string, _ func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, error) {
				started++
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		spec := make([]byte, muster.MaxSpecSize)
		start := time.Now()
		type client struct {
			cancel context.CancelFunc
			done   chan struct{}
		}
		clients := make([]client, 3)
		for i := range clients {
			ctx, cancel := context.WithCancel(t.Context())
			clients[i] = client{cancel, make(chan struct{})}
			go func() {
				defer close(clients[i].done)
				if _, err := s.parseSpecs(ctx, spec); err == nil {
					t.Errorf("client %d has an answer", i)
				}
			}()
			synctest.Wait()
		}
		if started != 1 {
			t.Fatalf("%d specs of 1 MB are parsed at once, want 1", started)
		}
		clients[1].cancel() // the queue
		<-clients[1].done
		clients[0].cancel() // a parse
		<-clients[0].done
		synctest.Wait()
		if started != 2 {
			t.Errorf("%d parses began after the first ended, want 2", started)
		}
		clients[2].cancel()
		<-clients[2].done
		if d := time.Since(start); d > 0 {
			t.Errorf("it took %s", d)
		}
	})
}

// Small specs are parsed concurrently, but with a limit: some cost a thousand times their size.
func TestSmallSpecsAreParsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var started atomic.Int32
		s := newServer(Config{
			LinkSocket: http.NotFoundHandler(), LinkPoll: http.NotFoundHandler(),
			Parse: func(ctx context.Context, _ []byte, _ string, _ func(*muster.Spec) []muster.FieldError) ([]*muster.Spec, error) {
				started.Add(1)
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		for range 100 {
			go func() { _, _ = s.parseSpecs(ctx, make([]byte, 500)) }()
			synctest.Wait()
		}
		if n := started.Load(); n < 10 || n > 20 {
			t.Errorf("%d small specs are parsed at once", n)
		}
		cancel()
		synctest.Wait()
	})
}
