// Package blobtest tests the contract of package blob. Every adapter runs
// it.
package blobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"pgregory.net/rapid"
)

// Run tests an adapter. open returns an empty store.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	t.Helper()
	cases := []struct {
		name string
		prop string
		test func(*testing.T, blob.Store)
	}{
		{"Keeps", "A blob is read unchanged, with its size, and seekable.", keeps},
		{"Absent", "A missing blob is NotFound.", absent},
		{"Hashes", "A name that is not 64 lower-case hex digits is Invalid.", hashes},
		{"Verifies", "Bytes with another hash are dropped, and the right ones are accepted afterwards.", verifies},
		{"Resumes", "An upload with any number of interruptions succeeds.", resumes},
		{"Offset", "A Put at another offset than the end of the last one is a Conflict and changes nothing.", offset},
		{"Again", "Putting an existing blob succeeds without reading.", again},
		{"Owners", "An unfinished upload belongs to its owner, and an owner must send all bytes of an existing blob.", owners},
		{"SetAside", "A quarantined blob is NotFound, and may be put again.", quarantine},
		{"SetAsideReplaced", "A file that replaced the one that was read is not quarantined.", quarantineReplaced},
		{"Together", "Simultaneous uploads of a blob all succeed or are a Conflict, and the blob is complete.", together},
		{"Cancels", "A Put ends with its context and keeps the received bytes.", cancels},
		{"Touches", "Touch returns the size of an existing blob, and changes nothing else.", touches},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			t.Log(c.prop)
			c.test(t, open(t))
		})
	}
}

func hashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// testBytes returns n bytes for a seed.
func testBytes(seed byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) + byte(i>>8) + seed
	}
	return b
}

func mustPut(t *testing.T, s blob.Store, data []byte) {
	t.Helper()
	if err := s.Put(t.Context(), hashOf(data), 0, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
}

func wantBlob(t *testing.T, s blob.Store, data []byte) {
	t.Helper()
	n, err := s.Stat(t.Context(), hashOf(data))
	if err != nil || n != int64(len(data)) {
		t.Fatalf("Stat = %d, %v, want %d", n, err, len(data))
	}
	r := open(t, s, hashOf(data))
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Fatalf("the blob has other bytes than were put")
	}
}

func wantCode(t *testing.T, err error, want muster.Code) {
	t.Helper()
	if err == nil || muster.CodeOf(err) != want {
		t.Fatalf("error %v, want one with code %s", err, want)
	}
}

// wantMissing checks that a blob does not exist.
func wantMissing(t *testing.T, s blob.Store, name string) {
	t.Helper()
	_, err := s.Stat(t.Context(), name)
	wantCode(t, err, muster.NotFound)
	_, err = s.Open(t.Context(), name)
	wantCode(t, err, muster.NotFound)
	_, err = s.Touch(t.Context(), name)
	wantCode(t, err, muster.NotFound)
}

func wantPartial(t *testing.T, u blob.Uploader, name string, want int64) {
	t.Helper()
	if n, err := u.Partial(t.Context(), name); n != want || err != nil {
		t.Fatalf("Partial = %d, %v, want %d", n, err, want)
	}
}

// interruptedPut puts a part of a blob from offset on, before its reader fails.
func interruptedPut(t rapid.TB, u blob.Uploader, name string, offset int64, part []byte) {
	t.Helper()
	r := io.MultiReader(bytes.NewReader(part), iotest.ErrReader(errBroken))
	if err := u.Put(context.Background(), name, offset, r); !errors.Is(err, errBroken) {
		t.Fatalf("the interrupted upload: %v", err)
	}
}

func wantQuarantine(t *testing.T, s blob.Store, name string, read io.ReadSeekCloser, want bool) {
	t.Helper()
	if moved, err := s.Quarantine(t.Context(), name, read); moved != want || err != nil {
		t.Fatalf("Quarantine = %t, %v, want %t", moved, err, want)
	}
}

func keeps(t *testing.T, s blob.Store) {
	t.Helper()
	for _, n := range []int{0, 1, 4096, 1 << 20} {
		mustPut(t, s, testBytes(1, n))
		wantBlob(t, s, testBytes(1, n))
	}
	data := testBytes(1, 4096)
	r := open(t, s, hashOf(data))
	defer func() { _ = r.Close() }()
	if _, err := r.Seek(-100, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data[len(data)-100:]) {
		t.Fatalf("after Seek: %d bytes, %v", len(got), err)
	}
}

func absent(t *testing.T, s blob.Store) {
	t.Helper()
	name := hashOf([]byte("nobody"))
	wantMissing(t, s, name)
	wantPartial(t, s, name, 0)
}

func hashes(t *testing.T, s blob.Store) {
	t.Helper()
	good := hashOf(nil)
	for _, name := range []string{"", "ab", good[:63], good + "0", strings.ToUpper(good), "../" + good[3:], good[:63] + "g", good[:63] + "/"} {
		_, err := s.Stat(t.Context(), name)
		wantCode(t, err, muster.Invalid)
		_, err = s.Open(t.Context(), name)
		wantCode(t, err, muster.Invalid)
		_, err = s.Partial(t.Context(), name)
		wantCode(t, err, muster.Invalid)
		wantCode(t, s.Put(t.Context(), name, 0, strings.NewReader("")), muster.Invalid)
		_, err = s.Touch(t.Context(), name)
		wantCode(t, err, muster.Invalid)
	}
}

func verifies(t *testing.T, s blob.Store) {
	t.Helper()
	data := testBytes(2, 10_000)
	wrong := bytes.Clone(data)
	wrong[9_999]++
	for _, bad := range [][]byte{wrong, data[:9_999], append(bytes.Clone(data), 0), nil} {
		wantCode(t, s.Put(t.Context(), hashOf(data), 0, bytes.NewReader(bad)), muster.Invalid)
		wantMissing(t, s, hashOf(data))
		wantPartial(t, s, hashOf(data), 0) // the wrong bytes were dropped
	}
	mustPut(t, s, data)
	wantBlob(t, s, data)
}

var errBroken = errors.New("broken")

func resumes(t *testing.T, s blob.Store) {
	t.Helper()
	seed := uint32(0)
	rapid.Check(t, func(rt *rapid.T) {
		seed++ // each upload is of another blob
		data := append(binary.LittleEndian.AppendUint32(nil, seed), rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(rt, "data")...)
		name := hashOf(data)
		for {
			at, err := s.Partial(t.Context(), name)
			if err != nil || at > int64(len(data)) {
				rt.Fatalf("Partial = %d, %v", at, err)
			}
			rest := data[at:]
			n := rapid.IntRange(0, len(rest)).Draw(rt, "bytes")
			if n == len(rest) {
				if err := s.Put(t.Context(), name, at, bytes.NewReader(rest)); err != nil {
					rt.Fatal(err)
				}
				break
			}
			interruptedPut(rt, s, name, at, rest[:n])
			if now, err := s.Partial(t.Context(), name); err != nil || now != at+int64(n) {
				rt.Fatalf("Partial = %d, %v, want %d", now, err, at+int64(n))
			}
			if _, err := s.Stat(t.Context(), name); muster.CodeOf(err) != muster.NotFound {
				rt.Fatalf("a partial blob exists: %v", err)
			}
		}
		wantBlob(t, s, data)
		wantPartial(t, s, name, 0)
	})
}

func offset(t *testing.T, s blob.Store) {
	t.Helper()
	data := testBytes(3, 1000)
	name := hashOf(data)
	wantCode(t, s.Put(t.Context(), name, 10, bytes.NewReader(data[10:])), muster.Conflict)
	interruptedPut(t, s, name, 0, data[:600])
	for _, at := range []int64{-1, 0, 599, 601, 1000} {
		wantCode(t, s.Put(t.Context(), name, at, iotest.ErrReader(errBroken)), muster.Conflict)
	}
	wantPartial(t, s, name, 600)
	if err := s.Put(t.Context(), name, 600, bytes.NewReader(data[600:])); err != nil {
		t.Fatal(err)
	}
	wantBlob(t, s, data)
}

func again(t *testing.T, s blob.Store) {
	t.Helper()
	data := testBytes(4, 1000)
	mustPut(t, s, data)
	if err := s.Put(t.Context(), hashOf(data), 0, iotest.ErrReader(errBroken)); err != nil {
		t.Fatal(err)
	}
	wantBlob(t, s, data)
}

func together(t *testing.T, s blob.Store) {
	t.Helper()
	data := testBytes(5, 300_000)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r := iotest.HalfReader(bytes.NewReader(data))
			if err := s.Put(t.Context(), hashOf(data), 0, r); err != nil && muster.CodeOf(err) != muster.Conflict {
				t.Errorf("put: %v", err)
			}
		})
	}
	wg.Wait()
	wantBlob(t, s, data)
}

func cancels(t *testing.T, s blob.Store) {
	t.Helper()
	data := testBytes(6, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	r := io.MultiReader(bytes.NewReader(data[:500]), readerFunc(func([]byte) (int, error) {
		cancel()
		return 0, nil
	}), bytes.NewReader(data[500:]))
	if err := s.Put(ctx, hashOf(data), 0, r); !errors.Is(err, context.Canceled) {
		t.Fatalf("Put = %v", err)
	}
	wantPartial(t, s, hashOf(data), 500)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func touches(t *testing.T, s blob.Store) {
	t.Helper()
	data := testBytes(7, 1000)
	_, err := s.Touch(t.Context(), hashOf(data))
	wantCode(t, err, muster.NotFound)
	mustPut(t, s, data)
	for range 2 {
		if n, err := s.Touch(t.Context(), hashOf(data)); n != 1000 || err != nil {
			t.Fatalf("Touch = %d, %v", n, err)
		}
	}
	wantBlob(t, s, data)
}

func owners(t *testing.T, s blob.Store) {
	t.Helper()
	data := testBytes(9, 1000)
	name := hashOf(data)
	one, other := s.ForOwner("one"), s.ForOwner("other/../\x00")
	interruptedPut(t, one, name, 0, data[:600])
	for _, u := range []blob.Uploader{other, s} {
		wantPartial(t, u, name, 0)
		wantCode(t, u.Put(t.Context(), name, 600, bytes.NewReader(data[600:])), muster.Conflict)
	}
	if err := other.Put(t.Context(), name, 0, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	wantBlob(t, s, data)
	// The blob exists, but other owners must still send all bytes.
	third := s.ForOwner("third")
	wantCode(t, third.Put(t.Context(), name, 0, strings.NewReader("")), muster.Invalid)
	wantCode(t, third.Put(t.Context(), name, 0, bytes.NewReader(data[:999])), muster.Invalid)
	wantBlob(t, s, data)
	if err := errors.Join(third.Put(t.Context(), name, 0, bytes.NewReader(data)), one.Put(t.Context(), name, 600, bytes.NewReader(data[600:]))); err != nil {
		t.Fatal(err)
	}
	wantBlob(t, s, data)
}

func open(t *testing.T, s blob.Store, sum string) io.ReadSeekCloser {
	t.Helper()
	f, err := s.Open(t.Context(), sum)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func quarantine(t *testing.T, s blob.Store) {
	t.Helper()
	data := testBytes(10, 1000)
	for range 2 {
		mustPut(t, s, data)
		first, second := open(t, s, hashOf(data)), open(t, s, hashOf(data))
		wantQuarantine(t, s, hashOf(data), first, true)
		wantQuarantine(t, s, hashOf(data), second, false) // it does not exist any more
		wantMissing(t, s, hashOf(data))
	}
	mustPut(t, s, data)
	wantBlob(t, s, data)
}

func quarantineReplaced(t *testing.T, s blob.Store) {
	t.Helper()
	data := testBytes(11, 1000)
	mustPut(t, s, data)
	read := open(t, s, hashOf(data))
	if err := s.ForOwner("one").Put(t.Context(), hashOf(data), 0, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	wantQuarantine(t, s, hashOf(data), read, false)
	wantBlob(t, s, data)
	// Another file after the quarantine.
	read = open(t, s, hashOf(data))
	wantQuarantine(t, s, hashOf(data), open(t, s, hashOf(data)), true)
	mustPut(t, s, data)
	wantQuarantine(t, s, hashOf(data), read, false)
	wantBlob(t, s, data)
}
