package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// TestThrottle checks, in virtual time, that several concurrent transfers keep to any rate.
func TestThrottle(t *testing.T) {
	for _, rate := range []muster.Size{1 << 10, 100_000, 1 << 30} {
		synctest.Test(t, func(t *testing.T) {
			limiter := newThrottle(rate)
			began := time.Now()
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for left := int(10 * rate / 4); left > 0; {
						n := len(limiter.clip(make([]byte, min(left, maxChunk))))
						if err := limiter.wait(t.Context(), n); err != nil {
							t.Errorf("wait: %v", err)
							return
						}
						left -= n
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took < 9*time.Second || took > 10*time.Second {
				t.Errorf("the data of 10 seconds at %s/s took %s", rate, took)
			}
		})
	}
}

func TestNoThrottle(t *testing.T) {
	limiter := newThrottle(0)
	if b := limiter.clip(make([]byte, 1<<20)); len(b) != 1<<20 || limiter.wait(t.Context(), len(b)) != nil {
		t.Error("bytes wait without a cap")
	}
}

// TestThrottleIsCancelled checks that no transfer waits longer than
// anything else.
func TestThrottleIsCancelled(t *testing.T) {
	limiter := newThrottle(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := limiter.wait(ctx, minChunk); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// chunkTransport is a connection that remembers how much was read from it at once.
type chunkTransport struct {
	http.RoundTripper

	mu      sync.Mutex
	maxRead int
}

func (p *chunkTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = &chunkReader{resp.Body, p}
	}
	return resp, err
}

type chunkReader struct {
	io.ReadCloser
	transport *chunkTransport
}

func (b *chunkReader) Read(buf []byte) (int, error) {
	b.transport.mu.Lock()
	b.transport.maxRead = max(b.transport.maxRead, len(buf))
	b.transport.mu.Unlock()
	return b.ReadCloser.Read(buf)
}

// TestTransfersAreThrottled checks that throttled transfers bring the same bytes
// in both directions, a piece at a time.
func TestTransfersAreThrottled(t *testing.T) {
	s := newServer(t)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &chunkTransport{RoundTripper: s.Client().Transport}
	dir := t.TempDir()
	c, err := New(Config{
		Server: u, Credentials: link.StaticToken("key"), HTTP: &http.Client{Transport: transport}, Dir: filepath.Join(dir, "cache"), Rate: 256 << 10, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	blob := random(150 << 10)
	path := filepath.Join(dir, "out")
	if err := c.Fetch(t.Context(), s.put(blob), int64(len(blob)), path); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, blob) {
		t.Fatalf("got %d bytes that differ, %v", len(got), err)
	}
	if transport.maxRead > 64<<10 {
		t.Errorf("%d bytes were read at once, a quarter of a second's worth is %d", transport.maxRead, 64<<10)
	}
	upload := random(100 << 10)
	if err := os.WriteFile(path, upload, 0o600); err != nil {
		t.Fatal(err)
	}
	sha, _, err := uploadPath(t, c, path)
	if err != nil || !bytes.Equal(s.blobs[sha], upload) {
		t.Errorf("uploaded %d of %d bytes, %v", len(s.blobs[sha]), len(upload), err)
	}
}
