package link_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/testkit"
)

// wire is what is below a sealed connection: it keeps what is written, and reads what a test delivers.
type wire struct{ written, delivered [][]byte }

func (w *wire) Write(_ context.Context, b []byte, _ bool) error {
	w.written = append(w.written, bytes.Clone(b))
	return nil
}

func (w *wire) Read(context.Context) ([]byte, error) {
	b := w.delivered[0]
	w.delivered = w.delivered[1:]
	return b, nil
}

func (w *wire) Close() error { return nil }

// sealedEnd is one side of a sealed connection and the wire below it.
type sealedEnd struct {
	link.FrameConn

	wire *wire
}

var testSecret = bytes.Repeat([]byte{7}, 32)

// sealedPair returns both sides of a new sealed connection.
func sealedPair(tb testing.TB, secret []byte, execID string) (worker, server sealedEnd) {
	tb.Helper()
	worker.wire, server.wire = &wire{}, &wire{}
	offer := link.OfferSeal(secret, execID)
	r := httptest.NewRequest(http.MethodGet, "/link/v1?id="+execID, nil)
	offer.SetNonce(r.Header)
	response := http.Header{}
	accepted := link.AcceptSeal(r, secret)
	accepted.SetNonce(response)
	var err error
	worker.FrameConn, err = offer.Worker(worker.wire, response)
	testkit.NoError(tb, err)
	server.FrameConn = accepted.Server(server.wire)
	return worker, server
}

// send returns the sealed form of a frame.
func (e sealedEnd) send(tb testing.TB, frame string) []byte {
	tb.Helper()
	testkit.NoError(tb, e.Write(tb.Context(), []byte(frame), false))
	return e.wire.written[len(e.wire.written)-1]
}

// deliver makes the connection read b.
func (e sealedEnd) deliver(ctx context.Context, b []byte) (string, error) {
	e.wire.delivered = append(e.wire.delivered, b)
	frame, err := e.Read(ctx)
	return string(frame), err
}

// wantFrame fails the test unless b is opened as a frame.
func (e sealedEnd) wantFrame(tb testing.TB, b []byte, frame string) {
	tb.Helper()
	if got, err := e.deliver(tb.Context(), b); err != nil || got != frame {
		tb.Fatalf("opened %q, %v; want %q", got, err, frame)
	}
}

// wantRejected fails the test unless b is rejected for a reason, one of those separated by |, and ends the connection.
func (e sealedEnd) wantRejected(tb testing.TB, b []byte, reasons string) {
	tb.Helper()
	got, err := e.deliver(tb.Context(), b)
	rejected, ok := errors.AsType[*link.FrameError](err)
	if !ok || !strings.Contains(reasons, rejected.Reason) || got != "" || !link.Retryable(err) {
		tb.Fatalf("%q: opened %q, %v; want it rejected as %s", b[:min(len(b), 120)], got, err, reasons)
	}
	if _, again := e.Read(tb.Context()); !errors.Is(again, err) {
		tb.Fatalf("after a rejected frame the connection reads on: %v", again)
	}
}

func TestSealedFramesPassInBothDirections(t *testing.T) {
	worker, server := sealedPair(t, testSecret, "")
	for i := range 20 {
		up, down := fmt.Sprintf(`{"seq":%d,"ping":true}`, i+1), strings.Repeat("x", i*1000)
		server.wantFrame(t, worker.send(t, up), up)
		worker.wantFrame(t, server.send(t, down), down)
	}
}

func TestAFrameAlteredInAnyBitIsRejected(t *testing.T) {
	const frame = `{"seq":1,"ping":true}`
	worker, _ := sealedPair(t, testSecret, "")
	size := len(worker.send(t, frame))
	for i := range size * 8 {
		worker, server := sealedPair(t, testSecret, "")
		b := worker.send(t, frame)
		b[i/8] ^= 1 << (i % 8)
		server.wantRejected(t, b, "altered|foreign|unsealed")
	}
	for i := range size {
		worker, server := sealedPair(t, testSecret, "")
		b := worker.send(t, frame)
		server.wantRejected(t, b[:i], "altered|unsealed")
	}
	worker, server := sealedPair(t, testSecret, "")
	server.wantRejected(t, append(worker.send(t, frame), ' '), link.Altered)
}

func TestFramesOutOfTheirPlaceAreRejected(t *testing.T) {
	tests := []struct {
		name    string
		deliver func(worker, server sealedEnd) []byte
		reason  string
	}{
		{"a repeated frame", func(worker, server sealedEnd) []byte {
			b := worker.send(t, "a")
			server.wantFrame(t, b, "a")
			return b
		}, link.Replayed},
		{"an old frame", func(worker, server sealedEnd) []byte {
			old := worker.send(t, "a")
			server.wantFrame(t, old, "a")
			server.wantFrame(t, worker.send(t, "b"), "b")
			return old
		}, link.Replayed},
		{"a later frame", func(worker, _ sealedEnd) []byte {
			worker.send(t, "a")
			return worker.send(t, "b")
		}, link.Reordered},
		{"a frame of another session of the same worker", func(sealedEnd, sealedEnd) []byte {
			other, _ := sealedPair(t, testSecret, "")
			return other.send(t, "a")
		}, link.Foreign},
		{"a frame of a command's connection", func(sealedEnd, sealedEnd) []byte {
			other, _ := sealedPair(t, testSecret, "0123456789abcdef")
			return other.send(t, "a")
		}, link.Foreign},
		{"a frame of the other direction", func(_, server sealedEnd) []byte { return server.send(t, "a") }, link.Foreign},
		{"a frame without a signature", func(sealedEnd, sealedEnd) []byte { return []byte(`{"seq":1}`) }, link.Unsealed},
		{"an empty frame", func(sealedEnd, sealedEnd) []byte { return nil }, link.Unsealed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			worker, server := sealedPair(t, testSecret, "")
			server.wantRejected(t, tt.deliver(worker, server), tt.reason)
		})
	}
}

func TestAWorkerWithAnotherSecretIsRejected(t *testing.T) {
	other := bytes.Repeat([]byte{8}, 32)
	offer := link.OfferSeal(other, "")
	r := httptest.NewRequest(http.MethodGet, "/link/v1", nil)
	offer.SetNonce(r.Header)
	response := http.Header{}
	accepted := link.AcceptSeal(r, testSecret)
	accepted.SetNonce(response)
	w := sealedEnd{wire: &wire{}}
	var err error
	w.FrameConn, err = offer.Worker(w.wire, response)
	testkit.NoError(t, err)
	server := sealedEnd{wire: &wire{}}
	server.FrameConn = accepted.Server(server.wire)
	server.wantRejected(t, w.send(t, "a"), link.Foreign)
}

// A request for the connection of one command cannot be led to that of another one.
func TestAConnectionOfAnotherCommandIsRejected(t *testing.T) {
	offer := link.OfferSeal(testSecret, "0123456789abcdef")
	r := httptest.NewRequest(http.MethodGet, "/link/v1/exec?id=fedcba9876543210", nil)
	offer.SetNonce(r.Header)
	response := http.Header{}
	accepted := link.AcceptSeal(r, testSecret)
	accepted.SetNonce(response)
	w, server := sealedEnd{wire: &wire{}}, sealedEnd{wire: &wire{}}
	var err error
	w.FrameConn, err = offer.Worker(w.wire, response)
	testkit.NoError(t, err)
	server.FrameConn = accepted.Server(server.wire)
	server.wantRejected(t, w.send(t, "a"), link.Foreign)
}

// A whole recorded connection cannot be repeated: the server's nonce is another one.
func TestARepeatedConnectionIsRejected(t *testing.T) {
	offer := link.OfferSeal(testSecret, "")
	r := httptest.NewRequest(http.MethodGet, "/link/v1", nil)
	offer.SetNonce(r.Header)
	response := http.Header{}
	link.AcceptSeal(r, testSecret).SetNonce(response)
	w := sealedEnd{wire: &wire{}}
	var err error
	w.FrameConn, err = offer.Worker(w.wire, response)
	testkit.NoError(t, err)
	recorded := w.send(t, "hello")
	again := sealedEnd{wire: &wire{}}
	again.FrameConn = link.AcceptSeal(r, testSecret).Server(again.wire)
	again.wantRejected(t, recorded, link.Foreign)
}

func TestALateFrameIsRejected(t *testing.T) {
	for _, tt := range []struct {
		held time.Duration
		late bool
	}{{link.SealTolerance, false}, {link.SealTolerance + time.Millisecond, true}} {
		synctest.Test(t, func(t *testing.T) {
			worker, server := sealedPair(t, testSecret, "")
			server.wantFrame(t, worker.send(t, "a"), "a")
			b := worker.send(t, "b")
			time.Sleep(tt.held)
			if !tt.late {
				server.wantFrame(t, b, "b")
				return
			}
			server.wantRejected(t, b, link.Late)
		})
	}
}

// Frames that are each held a little longer than the one before are late at last.
func TestDelaysAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		worker, server := sealedPair(t, testSecret, "")
		var frames [][]byte
		for range 12 {
			frames = append(frames, worker.send(t, "a"))
		}
		for i := range 11 {
			server.wantFrame(t, frames[i], "a")
			time.Sleep(30 * time.Second)
		}
		server.wantRejected(t, frames[11], link.Late)
	})
}

// The clocks of the two sides may differ by any amount: the first frame of a direction determines the difference.
func TestClocksMayDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		worker, server := sealedPair(t, testSecret, "")
		link.SetClock(worker.FrameConn, 0) // no clock yet after its start
		for range 3 {
			server.wantFrame(t, worker.send(t, "a"), "a")
			worker.wantFrame(t, server.send(t, "b"), "b")
			time.Sleep(time.Hour)
		}
		held := worker.send(t, "a")
		time.Sleep(link.SealTolerance + time.Millisecond)
		server.wantRejected(t, held, link.Late)
	})
}

func TestNoConnectionWithoutTheServersNonce(t *testing.T) {
	for _, nonce := range []string{"", strings.Repeat("x", 65)} {
		response := http.Header{}
		response.Set(link.HeaderNonce, nonce)
		conn, err := link.OfferSeal(testSecret, "").Worker(&wire{}, response)
		if conn != nil || muster.CodeOf(err) != muster.Unavailable {
			t.Errorf("nonce %.10q: %v, %v", nonce, conn, err)
		}
	}
}

// A worker whose nonce was removed on its way gets no session without signatures.
func TestARemovedNonceDoesNotTurnSignaturesOff(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/link/v1", nil)
	server := sealedEnd{wire: &wire{}}
	server.FrameConn = link.AcceptSeal(r, testSecret).Server(server.wire)
	server.wantRejected(t, []byte(`{"seq":1}`), link.Unsealed)
}

// FuzzFrame delivers any bytes as the second frame: only the one that the other side sealed is opened.
func FuzzFrame(f *testing.F) {
	worker, _ := sealedPair(f, testSecret, "")
	f.Add([]byte(nil))
	f.Add([]byte(`{"seq":2,"ping":true}`))
	f.Add(worker.send(f, `{"seq":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		worker, server := sealedPair(t, testSecret, "")
		server.wantFrame(t, worker.send(t, "a"), "a")
		good := worker.send(t, "b")
		for _, b := range [][]byte{b, append(bytes.Clone(good[:min(len(good), 53)]), b...)} { // any bytes; a true head with any rest
			if frame, err := server.deliver(t.Context(), b); err == nil && !bytes.Equal(b, good) {
				t.Fatalf("opened %q as %q", b, frame)
			}
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	for _, size := range []int{300, 64 << 10} {
		b.Run(fmt.Sprintf("%d bytes", size), func(b *testing.B) {
			worker, server := sealedPair(b, testSecret, "")
			frame := bytes.Repeat([]byte("x"), size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				worker.wire.written = worker.wire.written[:0]
				if err := worker.Write(b.Context(), frame, false); err != nil {
					b.Fatal(err)
				}
				server.wire.delivered = append(server.wire.delivered[:0], worker.wire.written[0])
				if _, err := server.Read(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
