package cid

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/muster-dev/muster"
)

// stream returns n bytes of a linear congruential generator, as in the vectors.
type stream struct {
	n int
	x uint32
}

func newStream(n int) *stream { return &stream{n: n, x: 1} }

func (s *stream) Read(b []byte) (int, error) {
	if s.n == 0 {
		return 0, io.EOF
	}
	b = b[:min(len(b), s.n)]
	for i := range b {
		s.x = s.x*1664525 + 1013904223
		b[i] = byte(s.x >> 24)
	}
	s.n -= len(b)
	return len(b), nil
}

// vectors are the results of three other implementations, which agree: Kubo 0.22 as a library (PyPI's kubo-python 0.1.5, AddFile), npm's
// ipfs-unixfs-importer 17.1.1 (cidVersion 0, rawLeaves false, fixed size chunks, balanced with 174) and PyPI's aleph-cid 0.1.0.
var vectors = []struct {
	size int
	cid  string
}{
	{0, "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH"},
	{1, "QmckNAcWX3uq4Mx8rSCsHvYyBuEwjPWkSBJ9NkJq1GEhma"},
	{12, "QmaGrm2WKXAHaQF8fxcA8vWxsFD4F1n9miBSB86wE7LFA6"},
	{chunk - 1, "QmXNiiQyYD4ECTmVJd1yvLwNgpXuj2ccY9DyoDXAoHB5uY"},
	{chunk, "QmYH5u9QHv3vJAuYtVEVjdoKTqwxDse32uG6QZHjrUBTxH"},
	{chunk + 1, "QmXk293KuVQQYgGpKe91CzW2hykJGFjmhjV4ZUDrXiRTFc"},
	{2 * chunk, "QmbMdkE9KbJfYbYa8T8z5tP8KniLvRsPK9hGbViwKxtLzr"},
	{10*chunk + 7, "QmbG3TweaVpoNfZYZdvHeH9FnXSAF6h8FTrZGRgdgWHxpw"},
	{width * chunk, "QmUfTtxTCStSw1Gw8ECVdTBBGao5hGnn23FAfubpZwCF2U"},
	{width*chunk + 1, "QmWrwe6nrE5JShDNfK29Hfh8yzmsTbZcwMrjFXTpDD92h2"},
}

func TestVectors(t *testing.T) {
	if got, err := Sum(strings.NewReader("hello world\n")); err != nil || got != "QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o" {
		t.Errorf("hello world is %s, %v", got, err)
	}
	for _, v := range vectors {
		if got, err := Sum(newStream(v.size)); err != nil || got != v.cid {
			t.Errorf("%d bytes are %s, %v; others say %s", v.size, got, err, v.cid)
		}
	}
}

// small are trees of several levels: files in chunks of 4 bytes, with 3 children to a node, by ipfs-unixfs-importer 17.1.1.
var small = []struct {
	size int
	cid  string
}{
	{4, "QmYe6mN4SAeKsF42odBpRR19hhqX7NJiz9xdePpFnQMpRH"},
	{12, "QmcLRSuatr4DVCWEwoGHK9DBs2TDnBSRp55aGHzxnsdpxv"},
	{13, "QmQbiACkhKxUtXPLKdonDUNa3L1kPvZ3n8wmv1aqQHw7x1"},
	{36, "QmTo9LgzYESegWH65mpTCB6tSuTs9NGpX3FXaZPQroWk1D"},
	{37, "QmNSQXZRNQcHrwdU3Z6rAC3qvck4RBSU3mqTNtDJCbySR8"},
	{40, "QmSioFzQWS8iEdAeCGwEp5gPpJeNf7sdt3Z3JYLog2xPHq"},
	{49, "QmZ3bV8xJWk1e2ZJK2jkuy2goqfJJeJyF1bcTygNUkDvMg"},
	{108, "QmQLvUdVZaNAME6MKPpyj7cMboraDQpM3NdiTA4DtZSP46"},
	{109, "QmVie5iWAfbUWuM8g51KBoJA6gXDULdAXygFvQJ4r8n1nx"},
	{150, "QmYTaZxSpgUWuG5gZ1iVN6Gfmq2HKFf3QcExyYst2pLnQB"},
	{325, "QmRAXr5oyE2GT3dLydYdWYNbwA2oEYVW7BaTXMZ4eh2Mbw"},
}

func TestLevels(t *testing.T) {
	for _, v := range small {
		if got, err := sum(newStream(v.size), 4, 3); err != nil || got != v.cid {
			t.Errorf("%d bytes are %s, %v; others say %s", v.size, got, err, v.cid)
		}
	}
}

// TestDelivery checks that the identifier does not depend on the sizes of reads, and that a failed read has no identifier.
func TestDelivery(t *testing.T) {
	for _, v := range vectors[:8] {
		for name, by := range map[string]func(io.Reader) io.Reader{
			"half of what is asked": iotest.HalfReader, "data together with the end": iotest.DataErrReader, "at random": func(r io.Reader) io.Reader { return randomReader{r} },
		} {
			if got, err := Sum(by(newStream(v.size))); err != nil || got != v.cid {
				t.Errorf("%d bytes, %s: %s, %v", v.size, name, got, err)
			}
		}
	}
	broken := errors.New("broken")
	if got, err := Sum(io.MultiReader(newStream(3*chunk), iotest.ErrReader(broken))); !errors.Is(err, broken) || got != "" {
		t.Errorf("a reader that fails: %q, %v", got, err)
	}
}

// randomReader delivers as many bytes as it likes.
type randomReader struct{ io.Reader }

func (d randomReader) Read(b []byte) (int, error) {
	return d.Reader.Read(b[:rand.IntN(len(b)+1)])
}

func TestCanonical(t *testing.T) {
	const zero = "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH"
	for _, text := range []string{zero, "bafybeif7ztnhq65lumvvtr4ekcwd2ifwgm3awq4zfr3srh462rwyinlb4y"} {
		if got, err := Canonical(text); err != nil || got != zero {
			t.Errorf("%s is %q, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "Qm", zero + "x", "../../etc/passwd", "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku", // raw
	} {
		if got, err := Canonical(text); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%q is accepted: %q, %v", text, got, err)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add(vectors[0].cid)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Canonical(text)
		if err != nil {
			return
		}
		if again, err := Canonical(got); err != nil || again != got || !strings.HasPrefix(got, "Qm") || len(got) != 46 {
			t.Errorf("%q is %q, which is %q, %v", text, got, again, err)
		}
	})
}

func BenchmarkOf(b *testing.B) {
	data := strings.Repeat("muster", 10<<20/6)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Sum(strings.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}
