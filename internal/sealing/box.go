package sealing

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

const (
	idSize = 4 // bytes of the identifier of a key
	// Overhead is how much longer a sealed text is, in bytes.
	Overhead = idSize + chacha20poly1305.NonceSizeX + chacha20poly1305.Overhead
)

// The causes of errors of Open.
var (
	// ErrOtherKey says that a text was sealed with a key that the Box does not have.
	ErrOtherKey = errors.New("it was sealed with another key")
	// ErrDamaged says that a text was changed, or sealed with another context.
	ErrDamaged = errors.New("it is damaged")
)

// Box seals texts with keys. Its methods may be called concurrently.
type Box struct {
	keys []sealingKey // the current one first
}

type sealingKey struct {
	id       [idSize]byte
	aead     cipher.AEAD
	nonceKey []byte
}

// New returns a Box that seals with the first of keys, which have KeySize bytes, and opens what any of them sealed.
func New(keys [][]byte) (*Box, error) {
	b := &Box{}
	for _, key := range keys {
		derived, err := hkdf.Key(sha256.New, key, nil, "muster sealing", 2*KeySize+idSize)
		if err != nil {
			return nil, fmt.Errorf("derive a key: %w", err)
		}
		k := sealingKey{nonceKey: derived[KeySize : 2*KeySize]}
		copy(k.id[:], derived[2*KeySize:])
		if k.aead, err = chacha20poly1305.NewX(derived[:KeySize]); err != nil {
			return nil, fmt.Errorf("derive a key: %w", err)
		}
		b.keys = append(b.keys, k)
	}
	if len(b.keys) == 0 {
		return nil, errors.New("no key to seal with")
	}
	return b, nil
}

// Seal encrypts a text with the current key. Only the same context opens it. The same text, context and key give the same bytes, so that what is
// sealed can be compared: the nonce is derived from all three, and is the same only if they are.
func (b *Box) Seal(text []byte, context string) []byte {
	k := &b.keys[0]
	mac := hmac.New(sha256.New, k.nonceKey)
	_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(context)))) // never fails
	_, _ = mac.Write([]byte(context))
	_, _ = mac.Write(text)
	nonce := mac.Sum(nil)[:chacha20poly1305.NonceSizeX]
	sealed := make([]byte, 0, len(text)+Overhead)
	sealed = append(append(sealed, k.id[:]...), nonce...)
	return k.aead.Seal(sealed, nonce, text, []byte(context))
}

// Open returns the text of what Seal returned with the same context. Its errors are ErrOtherKey and ErrDamaged.
func (b *Box) Open(sealed []byte, context string) ([]byte, error) {
	if len(sealed) < Overhead {
		return nil, ErrDamaged
	}
	id, nonce, body := sealed[:idSize], sealed[idSize:idSize+chacha20poly1305.NonceSizeX], sealed[idSize+chacha20poly1305.NonceSizeX:]
	known := false
	for i := range b.keys {
		k := &b.keys[i]
		if string(k.id[:]) != string(id) {
			continue
		}
		known = true
		if text, err := k.aead.Open(nil, nonce, body, []byte(context)); err == nil {
			return text, nil
		}
	}
	if known {
		return nil, ErrDamaged
	}
	return nil, ErrOtherKey
}

// Current reports whether a text was sealed with the current key.
func (b *Box) Current(sealed []byte) bool {
	return len(sealed) >= Overhead && string(sealed[:idSize]) == string(b.keys[0].id[:])
}
