package cid

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
)

// maxText is the maximum length of an identifier: the time to decode base 58 grows with its square.
const maxText = 512

// dagPB is the multicodec of dag-pb nodes.
const dagPB = 0x70

var errText = errors.New("it is no content identifier")

// parse returns the multihash of an identifier, and whether it is that of a dag-pb node by its SHA-256.
//
// Sources: github.com/multiformats/cid, multibase and multihash.
func parse(text string) (hash []byte, ofNode bool, err error) {
	if len(text) > maxText {
		return nil, false, errText
	}
	if len(text) == 46 && strings.HasPrefix(text, "Qm") { // version 0
		hash, err = base58.decode(text)
		if err != nil || len(hash) != 2+sha256.Size || hash[0] != sha2 || hash[1] != sha256.Size {
			return nil, false, errText
		}
		return hash, true, nil
	}
	b, err := decodeMultibase(text)
	if err != nil {
		return nil, false, err
	}
	version, b, err := uvarint(b)
	if err != nil || version != 1 {
		return nil, false, errText
	}
	codec, b, err := uvarint(b)
	if err != nil {
		return nil, false, err
	}
	hash = b
	function, b, err := uvarint(b)
	if err != nil {
		return nil, false, err
	}
	size, b, err := uvarint(b)
	if err != nil || size != uint64(len(b)) {
		return nil, false, errText
	}
	return hash, codec == dagPB && function == sha2 && size == sha256.Size, nil
}

// uvarint decodes an unsigned varint in its shortest form, of at most 9 bytes.
func uvarint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n > 9 || n > 1 && b[n-1] == 0 {
		return 0, nil, errText
	}
	return v, b[n:], nil
}

// decodeMultibase decodes a text whose first letter names its base.
func decodeMultibase(text string) ([]byte, error) {
	if text == "" {
		return nil, errText
	}
	digits := text[1:]
	switch text[0] {
	case 'b', 'B':
		return base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(digits))
	case 'z':
		return base58.decode(digits)
	case 'k', 'K':
		return base36.decode(strings.ToLower(digits))
	case 'f', 'F':
		return hex.DecodeString(digits)
	case 'm':
		return base64.RawStdEncoding.DecodeString(digits)
	case 'u':
		return base64.RawURLEncoding.DecodeString(digits)
	default:
		return nil, errText
	}
}

// alphabet has the digits of a number system in which bytes are one large number; zero bytes in front are zero digits.
type alphabet string

const (
	base58 alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz" // of Bitcoin
	base36 alphabet = "0123456789abcdefghijklmnopqrstuvwxyz"
)

func (a alphabet) encode(b []byte) string {
	var digits []byte // the lowest first
	for _, v := range b {
		rest := int(v)
		for i, d := range digits {
			rest += int(d) << 8
			digits[i] = byte(rest % len(a))
			rest /= len(a)
		}
		for ; rest > 0; rest /= len(a) {
			digits = append(digits, byte(rest%len(a)))
		}
	}
	for i := 0; i < len(b) && b[i] == 0; i++ {
		digits = append(digits, 0)
	}
	slices.Reverse(digits)
	for i, d := range digits {
		digits[i] = a[d]
	}
	return string(digits)
}

func (a alphabet) decode(text string) ([]byte, error) {
	var b []byte // the lowest first
	for i := range len(text) {
		rest := strings.IndexByte(string(a), text[i])
		if rest < 0 {
			return nil, errText
		}
		for j, v := range b {
			rest += int(v) * len(a)
			b[j] = byte(rest)
			rest >>= 8
		}
		for ; rest > 0; rest >>= 8 {
			b = append(b, byte(rest))
		}
	}
	for i := 0; i < len(text) && text[i] == a[0]; i++ {
		b = append(b, 0)
	}
	slices.Reverse(b)
	return b, nil
}
