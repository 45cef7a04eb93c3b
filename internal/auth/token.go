package auth

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"

	"github.com/muster-dev/muster"
)

// RandomBytes is how many random bytes NewToken needs: 160 bits.
const RandomBytes = 20

// MinToken and MaxToken limit the length of a token that a user chose.
const (
	MinToken = 16
	MaxToken = 256
)

// NewToken makes a token for a role from random bytes.
func NewToken(role Role, random [RandomBytes]byte) string {
	return "mst_" + string(role) + "_" + encode(random[:])
}

// prefixRandom is how many random characters of a token Prefix shows: 20 of 160 bits, so that 140 bits remain secret.
const prefixRandom = 4

// Prefix returns how a token that NewToken made begins, for recognition: "mst_ROLE_" and some characters. It is "" for tokens that a
// user chose, of which no character may be known.
func Prefix(token string) string {
	token, _ = SplitToken(token)
	begin, random := token[:strings.LastIndexByte(token, '_')+1], token[strings.LastIndexByte(token, '_')+1:]
	role, ok := strings.CutPrefix(begin, "mst_")
	if _, err := ParseRole(strings.TrimSuffix(role, "_")); !ok || err != nil || len(random) != len(encode(make([]byte, RandomBytes))) {
		return ""
	}
	return begin + random[:prefixRandom]
}

// NewID makes the public id of a key from random bytes.
func NewID(random [5]byte) string { return "k" + encode(random[:]) }

func encode(b []byte) string {
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// Hash returns the SHA-256 of a token in hex, by which its key is found. The fingerprint of a server's authority (SplitToken) does not count.
func Hash(token string) string {
	token, _ = SplitToken(token)
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// CheckToken returns an Invalid error if a token that a user chose is not usable.
func CheckToken(token string) error {
	if len(token) < MinToken || len(token) > MaxToken {
		return muster.Errorf(muster.Invalid, "a token has %d to %d characters, this one has %d", MinToken, MaxToken, len(token))
	}
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c > '~' {
			return muster.Errorf(muster.Invalid, "a token must be visible ASCII without spaces: character %d is not", i+1)
		}
	}
	return nil
}

// A token may end in the fingerprint of the certificate authority of its server, so that a client needs nothing else to verify it:
// "mst_join_….ca" and pinLength characters. The fingerprint is not secret, is not a part of the key, and need not be sent.
const (
	pinMark   = ".ca"
	pinLength = 52 // SHA-256 in base32 without padding
)

// SplitToken splits the fingerprint from a token; pin is "" if it has none.
func SplitToken(s string) (token, pin string) {
	i := len(s) - len(pinMark) - pinLength
	if i < 0 || !strings.HasPrefix(s[i:], pinMark) {
		return s, ""
	}
	pin = s[i+len(pinMark):]
	if strings.ContainsFunc(pin, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '2' || r > '7') }) {
		return s, ""
	}
	return s[:i], pin
}

// WithPin appends the fingerprint of a server's authority to a token, unless one of them is "" or the token has a fingerprint.
func WithPin(token, pin string) string {
	if _, own := SplitToken(token); token == "" || pin == "" || own != "" {
		return token
	}
	return token + pinMark + pin
}
