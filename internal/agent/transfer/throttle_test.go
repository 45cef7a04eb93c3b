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
)

// TestThrottle holds, in virtual time, that several that move bytes together keep
// to the rate, whatever it is.
func TestThrottle(t *testing.T) {
	for _, rate := range []muster.Size{1 << 10, 100_000, 1 << 30} {
		synctest.Test(t, func(t *testing.T) {
			pace := newThrottle(rate)
			began := time.Now()
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for left := int(10 * rate / 4); left > 0; {
						n := len(pace.cut(make([]byte, min(left, mostAtOnce))))
						if err := pace.wait(t.Context(), n); err != nil {
							t.Errorf("wait: %v", err)
							return
						}
						left -= n
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took < 9*time.Second || took > 10*time.Second {
				t.Errorf("10 seconds' worth at %s/s took %s", rate, took)
			}
		})
	}
}

func TestThrottleIsNone(t *testing.T) {
	pace := newThrottle(0)
	if b := pace.cut(make([]byte, 1<<20)); len(b) != 1<<20 || pace.wait(t.Context(), len(b)) != nil {
		t.Error("bytes wait without a cap")
	}
}

// TestThrottleIsCancelled holds that nobody waits for leave any longer than for
// anything else.
func TestThrottleIsCancelled(t *testing.T) {
	pace := newThrottle(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pace.wait(ctx, leastAtOnce); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// pieces is a connection that remembers how much was read from it at once.
type pieces struct {
	http.RoundTripper

	mu   sync.Mutex
	most int
}

func (p *pieces) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = &piecewise{resp.Body, p}
	}
	return resp, err
}

type piecewise struct {
	io.ReadCloser
	of *pieces
}

func (b *piecewise) Read(buf []byte) (int, error) {
	b.of.mu.Lock()
	b.of.most = max(b.of.most, len(buf))
	b.of.mu.Unlock()
	return b.ReadCloser.Read(buf)
}

// TestTransfersKeepToTheRate holds that throttled transfers bring the same bytes
// in both directions, a piece at a time.
func TestTransfersKeepToTheRate(t *testing.T) {
	s := newServer(t)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	seen := &pieces{RoundTripper: s.Client().Transport}
	dir := t.TempDir()
	c, err := New(Config{
		Server: u, Key: "key", HTTP: &http.Client{Transport: seen}, Dir: filepath.Join(dir, "cache"), Rate: 256 << 10, Log: slog.New(slog.DiscardHandler),
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
	if seen.most > 64<<10 {
		t.Errorf("%d bytes were read at once, a quarter of a second's worth is %d", seen.most, 64<<10)
	}
	mine := random(100 << 10)
	if err := os.WriteFile(path, mine, 0o600); err != nil {
		t.Fatal(err)
	}
	sha, _, err := uploadPath(t, c, path)
	if err != nil || !bytes.Equal(s.blobs[sha], mine) {
		t.Errorf("uploaded %d of %d bytes, %v", len(s.blobs[sha]), len(mine), err)
	}
}
