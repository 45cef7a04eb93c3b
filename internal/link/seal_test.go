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
	"github.com/muster-dev/muster/internal/bootclock"
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

// machine is one side's machine in a world whose time a test sets.
type machine struct {
	sealedEnd

	world *time.Duration // since the connection began
	slept time.Duration
}

// machines returns a sealed connection between two machines.
func machines(t *testing.T) (worker, server *machine) {
	t.Helper()
	var world time.Duration
	worker, server = &machine{world: &world}, &machine{world: &world}
	worker.sealedEnd, server.sealedEnd = sealedPair(t, testSecret, "")
	for _, m := range []*machine{worker, server} {
		link.SetElapsed(m.FrameConn, func() (awake, asleep time.Duration) { return *m.world - m.slept, m.slept })
	}
	return worker, server
}

// sleep suspends the machine. Time passes for the other one, too.
func (m *machine) sleep(d time.Duration) {
	*m.world += d
	m.slept += d
}

// Machines that sleep often, each time for a short while, stay connected, with frames that waited for them.
func TestSleepsDoNotAddUp(t *testing.T) {
	worker, server := machines(t)
	server.wantFrame(t, worker.send(t, "hello"), "hello")
	worker.wantFrame(t, server.send(t, "welcome"), "welcome")
	for i := range 100 {
		sleeper, other := worker, server
		if i%3 == 0 {
			sleeper, other = server, worker
		}
		waiting := other.send(t, "sent while the other side sleeps")
		sleeper.sleep(20 * time.Second)
		sleeper.wantFrame(t, waiting, "sent while the other side sleeps")
		other.wantFrame(t, sleeper.send(t, "awake"), "awake")
		*worker.world += time.Minute
	}
	held := worker.send(t, "held")
	*worker.world += link.SealTolerance + time.Millisecond
	server.wantRejected(t, held, link.Late)
}

// A frame that waited for too long because its receiver slept ends the session with this reason, and is not reported as an attack. A frame that
// was also held on its way for too long is.
func TestASuspendedMachineEndsItsSessionOnce(t *testing.T) {
	for _, tt := range []struct {
		name       string
		held, nap  time.Duration // while the receiver is awake, and asleep
		ok, attack bool
	}{
		{name: "a short sleep", held: time.Minute, nap: 4 * time.Minute, ok: true},
		{name: "a night", nap: 8 * time.Hour},
		{name: "a night, and within the tolerance on its way", held: link.SealTolerance, nap: 8 * time.Hour},
		{name: "a night, and too long on its way", held: link.SealTolerance + time.Millisecond, nap: 8 * time.Hour, attack: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, up := range []bool{true, false} {
				sender, receiver := machines(t)
				if up {
					sender, receiver = receiver, sender
				}
				receiver.sleep(time.Minute) // before the frame was sent
				receiver.wantFrame(t, sender.send(t, "first"), "first")
				b := sender.send(t, "waits")
				receiver.sleep(tt.nap)
				*receiver.world += tt.held
				switch {
				case tt.ok:
					receiver.wantFrame(t, b, "waits")
				case tt.attack:
					receiver.wantRejected(t, b, link.Late)
				default:
					receiver.wantSuspended(t, b)
				}
			}
		})
	}
}

// A machine that slept between its request for a connection and the first frame does not take the time of that for all others.
func TestASuspensionBeforeTheFirstFrame(t *testing.T) {
	sender, receiver := machines(t)
	b := sender.send(t, "first")
	receiver.sleep(link.MaxFirstSleep)
	receiver.wantFrame(t, b, "first")
	receiver.wantFrame(t, sender.send(t, "second"), "second")

	sender, receiver = machines(t)
	b = sender.send(t, "first")
	receiver.sleep(link.MaxFirstSleep + time.Millisecond)
	receiver.wantSuspended(t, b)
}

// wantSuspended fails the test unless b ends the connection because the machine slept, so that both sides connect again.
func (m *machine) wantSuspended(t *testing.T, b []byte) {
	t.Helper()
	got, err := m.deliver(t.Context(), b)
	if _, ok := errors.AsType[*link.FrameError](err); ok || !errors.Is(err, link.ErrSuspended) || !link.Retryable(err) || got != "" {
		t.Fatalf("opened %q, %v; want the end of the connection because the machine slept", got, err)
	}
	if _, again := m.Read(t.Context()); !errors.Is(again, err) {
		t.Errorf("the connection continues: %v", again)
	}
	if g := link.GoodbyeFor(err); g == nil || g.Code != muster.Unavailable || !strings.Contains(g.Message, "the machine was suspended for ") {
		t.Errorf("the server says goodbye with %+v", g)
	}
}

// TestElapsedTimeHasSleep checks that a connection measures the sleep of its machine by the boot clock, and that this never runs backwards.
func TestElapsedTimeHasSleep(t *testing.T) {
	awake, asleep := link.ElapsedSince(time.Now(), bootclock.Now()-time.Hour)()
	if awake > time.Minute || asleep < 59*time.Minute || asleep > 61*time.Minute {
		t.Errorf("awake for %s, asleep for %s; want an hour of sleep", awake, asleep)
	}
	if _, asleep = link.ElapsedSince(time.Now(), bootclock.Now()+time.Hour)(); asleep != 0 {
		t.Errorf("asleep for %s; want 0", asleep)
	}
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
