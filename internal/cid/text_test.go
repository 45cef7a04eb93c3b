package cid

import (
	"testing"

	original "github.com/ipfs/go-cid"
	"github.com/multiformats/go-multibase"
	"pgregory.net/rapid"
)

// Identifiers in all bases that we accept are read as the reference implementation does, and damaged ones are rejected as there.
func TestLikeOriginal(t *testing.T) {
	bases := []multibase.Encoding{
		multibase.Base32, multibase.Base32Upper, multibase.Base58BTC, multibase.Base36, multibase.Base36Upper, multibase.Base16, multibase.Base16Upper, multibase.Base64, multibase.Base64url,
	}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{32, 32, 32, 20, 64, 0}).Draw(t, "size")
		digest := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "digest")
		function := rapid.SampledFrom([]byte{sha2, sha2, 0x11, 0x13, 0}).Draw(t, "function")
		hash := append([]byte{function, byte(size)}, digest...)
		text := base58.encode(hash)
		if rapid.Bool().Draw(t, "version 1") {
			codec := rapid.SampledFrom([]byte{dagPB, dagPB, 0x55}).Draw(t, "codec")
			var err error
			if text, err = multibase.Encode(rapid.SampledFrom(bases).Draw(t, "base"), append([]byte{1, codec}, hash...)); err != nil {
				t.Fatal(err)
			}
		}
		if rapid.Bool().Draw(t, "damage") {
			b := []byte(text)
			for range rapid.IntRange(1, 3).Draw(t, "changes") {
				if len(b) > 0 {
					b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.SampledFrom([]byte("0O1lIzbfkmuQa=-_ \x00\xff")).Draw(t, "byte")
				}
			}
			text = string(b[:rapid.IntRange(0, len(b)).Draw(t, "length")])
		}
		compare(t, text)
	})
}

func compare(t interface{ Errorf(string, ...any) }, text string) {
	want := ""
	if c, err := original.Decode(text); err == nil {
		if p := c.Prefix(); p.Codec == original.DagProtobuf && p.MhType == sha2 && p.MhLength == 32 {
			want = original.NewCidV0(c.Hash()).String()
		}
	}
	if got, err := Canonical(text); got != want || (err == nil) != (want != "") {
		t.Errorf("%q is %q, %v; want %q", text, got, err, want)
	}
}
