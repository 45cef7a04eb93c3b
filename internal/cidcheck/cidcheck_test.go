package cidcheck

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/store"
)

const (
	hello    = "QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN" // of "hello\n"
	helloSum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
)

// fakeStore records results.
type fakeStore struct {
	mu     sync.Mutex
	proofs []store.Verification
}

func (n *fakeStore) SetVerification(_ context.Context, _ store.Content, p store.Verification) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proofs = append(n.proofs, p)
	return nil
}

// gatedBlobs are blobs that begin to deliver when they may.
type gatedBlobs struct {
	blob.Store
	opened chan struct{} // gets a value for each Open
	allow  chan struct{}
}

func (s *gatedBlobs) Open(ctx context.Context, sum string) (io.ReadSeekCloser, error) {
	s.opened <- struct{}{}
	select {
	case <-s.allow:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.Store.Open(ctx, sum)
}

func begin(t *testing.T) (*Verifier, *fakeStore, *gatedBlobs) {
	t.Helper()
	dir, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Put(t.Context(), helloSum, 0, strings.NewReader("hello\n")); err != nil {
		t.Fatal(err)
	}
	n, s := &fakeStore{}, &gatedBlobs{Store: dir, opened: make(chan struct{}, 10), allow: make(chan struct{})}
	p := New(n, s, slog.New(slog.DiscardHandler))
	t.Cleanup(p.Close)
	return p, n, s
}

func TestConcurrentChecksReadTheFileOnce(t *testing.T) { synctest.Test(t, readOnce) }

func readOnce(t *testing.T) {
	p, n, s := begin(t)
	c := store.Content{CID: hello, SHA256: helloSum}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Verify(cancelled, c); !errors.Is(err, context.Canceled) {
		t.Fatalf("the cancelled caller got %v", err)
	}
	<-s.opened // it is read all the same
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if ok, err := p.Verify(t.Context(), c); !ok || err != nil {
				t.Errorf("it is %v, %v", ok, err)
			}
		})
	}
	synctest.Wait() // all of them do
	close(s.allow)
	wg.Wait()
	for range 5 { // as the store tells it from then on
		c.Verification = store.Verified
		if ok, err := p.Verify(t.Context(), c); !ok || err != nil {
			t.Errorf("it is %v, %v", ok, err)
		}
	}
	p.Close()
	if len(s.opened) != 0 || len(n.proofs) != 1 || n.proofs[0] != store.Verified {
		t.Errorf("it was read %d times more, and noted is %v", len(s.opened), n.proofs)
	}
}

func TestOtherBytesAreInvalid(t *testing.T) {
	p, n, s := begin(t)
	close(s.allow)
	if ok, err := p.Verify(t.Context(), store.Content{CID: "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD", SHA256: helloSum}); ok || err != nil {
		t.Errorf("it is %v, %v", ok, err)
	}
	if _, err := p.Verify(t.Context(), store.Content{CID: hello, SHA256: strings.Repeat("a", 64)}); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("a missing file: %v", err)
	}
	if len(n.proofs) != 1 || n.proofs[0] != store.Mismatch {
		t.Errorf("the note has %v", n.proofs)
	}
}

func TestCloseStopsReading(t *testing.T) {
	p, n, s := begin(t)
	ended := make(chan error, 1)
	go func() {
		_, err := p.Verify(context.Background(), store.Content{CID: hello, SHA256: helloSum})
		ended <- err
	}()
	<-s.opened
	p.Close()
	if err := <-ended; err == nil {
		t.Error("a reading that was broken off proves something")
	}
	if _, err := p.Verify(t.Context(), store.Content{CID: hello, SHA256: helloSum}); muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("after the end: %v", err)
	}
	if len(n.proofs) != 0 {
		t.Errorf("the note has %v", n.proofs)
	}
}
