package builtin

import (
	"context"
	"crypto/md5"  //nolint:gosec // a checksum that users ask for
	"crypto/sha1" //nolint:gosec // a checksum that users ask for
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/hex"
	"hash"

	"github.com/muster-dev/muster"
)

type hashResult struct {
	Algorithm string `json:"algorithm"`
	Digest    string `json:"digest"` // lower-case hex
	Length    int    `json:"length"` // of the input in bytes
}

var hashes = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
	"sha3_224": func() hash.Hash { return sha3.New224() }, "sha3_256": func() hash.Hash { return sha3.New256() },
	"sha3_384": func() hash.Hash { return sha3.New384() }, "sha3_512": func() hash.Hash { return sha3.New512() },
}

func hashText(_ context.Context, t *task) (any, error) {
	in := struct {
		Data      string `json:"data"`
		Algorithm string `json:"algorithm"`
		Encoding  string `json:"encoding"`
	}{Algorithm: "sha256", Encoding: "utf-8"}
	if err := t.decodeInput(&in); err != nil {
		return nil, err
	}
	maxRune := map[string]rune{"utf-8": 0x10ffff, "ascii": 0x7f, "latin-1": 0xff}[in.Encoding]
	var text []byte
	for _, r := range in.Data {
		if r > maxRune {
			return nil, failf(muster.BadInput, "input: data: %q cannot be encoded as %s", r, in.Encoding)
		}
		if in.Encoding == "latin-1" {
			text = append(text, byte(r))
		}
	}
	if in.Encoding != "latin-1" {
		text = []byte(in.Data)
	}
	h := hashes[in.Algorithm]
	if h == nil {
		return nil, failf(muster.BadInput, "input: algorithm: unknown algorithm %q", in.Algorithm)
	}
	d := h()
	d.Write(text)
	return hashResult{Algorithm: in.Algorithm, Digest: hex.EncodeToString(d.Sum(nil)), Length: len(text)}, nil
}
