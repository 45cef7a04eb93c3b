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

// NewID makes the public id of a key from random bytes.
func NewID(random [5]byte) string { return "k" + encode(random[:]) }

func encode(b []byte) string {
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// Hash returns the SHA-256 of a token in hex, by which its key is found.
func Hash(token string) string {
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
