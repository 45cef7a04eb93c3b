// Package handshake is how a worker and a server prove their identities to each other, and agree on the secret of a session.
//
// Both have an Ed25519 key pair for life. A worker registers its public key with a join token (or, once, with the bearer key that earlier
// versions gave it) and pins that of the server. For each session it then asks for a token:
//
//	worker                                                       server
//	  │  worker, public key, server's id, time, nonce,              │
//	  ├─ ephemeral X25519 key; signature ──────────────────────────►│  checks server's id, time, signature, nonce
//	  │◄─ token, its end, time, ephemeral X25519 key; signature ────┤
//	  │                                                             │
//	  └── secret = HKDF-SHA256(X25519, SHA-256 of all above) ───────┘
//
// What is signed begins with a text that says what it is for, so that no signature has two meanings, and each field has its length before it.
// The worker's signature covers the server's id, which is its public key, so that no other server can use it; the server's covers the whole
// request, so that an answer fits one request only. The ephemeral keys are forgotten: an identity that is stolen later does not reveal the
// secrets of earlier sessions.
//
// The functions are pure except that they draw random numbers, and may be called concurrently.
package handshake

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/muster-dev/muster"
)

const (
	// MaxSkew is how far the clocks of a worker and its server may differ.
	MaxSkew = muster.Duration(2 * time.Minute)
	// SecretSize is the size of the secret of a session in bytes.
	SecretSize = 32

	nonceSize    = 16
	exchangeSize = 32
)

// What a signature is for.
const (
	domainJoin    = "muster worker joins, version 1"
	domainMove    = "muster worker registers its key, version 1"
	domainRequest = "muster worker requests a session, version 1"
	domainGrant   = "muster server grants a session, version 1"
	domainSecret  = "muster session secret, version 1"
)

// SessionRequest is a worker's request for a session token.
type SessionRequest struct {
	Worker    muster.WorkerID `json:"worker"`
	PublicKey []byte          `json:"public_key"` // of the worker
	Server    string          `json:"server"`     // id of the server, see ServerID
	At        muster.Time     `json:"at"`         // by the worker's clock
	Nonce     []byte          `json:"nonce"`
	Exchange  []byte          `json:"exchange"` // ephemeral X25519 key
	Signature []byte          `json:"signature"`
}

// SessionGrant is the answer to a SessionRequest.
type SessionGrant struct {
	Token     string      `json:"token"`
	ExpiresAt muster.Time `json:"expires_at"`
	At        muster.Time `json:"at"`       // by the server's clock
	Exchange  []byte      `json:"exchange"` // ephemeral X25519 key
	Signature []byte      `json:"signature"`
}

// ServerID returns the id of a server, by its public key: the audience of tokens and requests.
func ServerID(public ed25519.PublicKey) string { return base64.RawURLEncoding.EncodeToString(public) }

// ParseServerID returns the public key of a server.
func ParseServerID(id string) (ed25519.PublicKey, error) {
	b, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, muster.Errorf(muster.Invalid, "%q is not the id of a server, 43 characters of base64url", id)
	}
	return b, nil
}

// text encodes what is signed.
func text(domain string, fields ...[]byte) []byte {
	b := append([]byte(domain), 0)
	for _, f := range fields {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return b
}

func timeField(t muster.Time) []byte { return binary.BigEndian.AppendUint64(nil, uint64(t)) }

func proofText(domain, tokenHash, name string, public []byte, at muster.Time) []byte {
	return text(domain, []byte(tokenHash), []byte(name), public, timeField(at))
}

// ProveJoin signs that the owner of key joins as name by the token with a hash, at a time.
func ProveJoin(key ed25519.PrivateKey, tokenHash, name string, at muster.Time) []byte {
	return ed25519.Sign(key, proofText(domainJoin, tokenHash, name, publicOf(key), at))
}

// CheckJoin checks a signature of ProveJoin.
func CheckJoin(public []byte, tokenHash, name string, at muster.Time, proof []byte) error {
	return check(public, proofText(domainJoin, tokenHash, name, public, at), proof)
}

// ProveMove signs that the owner of key registers it in place of the bearer key with a hash, at a time.
func ProveMove(key ed25519.PrivateKey, tokenHash string, at muster.Time) []byte {
	return ed25519.Sign(key, proofText(domainMove, tokenHash, "", publicOf(key), at))
}

// CheckMove checks a signature of ProveMove.
func CheckMove(public []byte, tokenHash string, at muster.Time, proof []byte) error {
	return check(public, proofText(domainMove, tokenHash, "", public, at), proof)
}

func publicOf(key ed25519.PrivateKey) ed25519.PublicKey {
	return ed25519.PublicKey(key[len(key)-ed25519.PublicKeySize:])
}

func check(public, signed, signature []byte) error {
	if len(public) != ed25519.PublicKeySize {
		return muster.Errorf(muster.Invalid, "public_key: must have %d bytes, not %d", ed25519.PublicKeySize, len(public))
	}
	if !ed25519.Verify(public, signed, signature) {
		return muster.Errorf(muster.Invalid, "the signature does not fit the public key and the request")
	}
	return nil
}

// CheckClock returns an Invalid error that has both times if the worker's clock differs from the server's by more than MaxSkew.
func CheckClock(worker, server muster.Time) error {
	skew, where := worker.Sub(server), "ahead"
	if skew < 0 {
		skew, where = -skew, "behind"
	}
	if skew <= MaxSkew {
		return nil
	}
	return muster.Errorf(muster.Invalid, "the worker's clock is %s %s: it says %s and the server's %s, and the maximum is %s: synchronize both with NTP, such as by timedatectl set-ntp true",
		skew, where, worker, server, MaxSkew)
}

func (r *SessionRequest) text() []byte {
	return text(domainRequest, []byte(r.Worker), r.PublicKey, []byte(r.Server), timeField(r.At), r.Nonce, r.Exchange)
}

// NewRequest returns a signed request, and the ephemeral key that Confirm needs.
func NewRequest(key ed25519.PrivateKey, worker muster.WorkerID, server string, at muster.Time) (*SessionRequest, *ecdh.PrivateKey, error) {
	ephemeral, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make an ephemeral key: %w", err)
	}
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	r := &SessionRequest{Worker: worker, PublicKey: publicOf(key), Server: server, At: at, Nonce: nonce, Exchange: ephemeral.PublicKey().Bytes()}
	r.Signature = ed25519.Sign(key, r.text())
	return r, ephemeral, nil
}

// Check returns an Invalid error unless the request is for a server, is of now and has a valid signature. That the public key is the worker's,
// and that the nonce is new, is for the caller to check.
func (r *SessionRequest) Check(server string, now muster.Time) error {
	switch {
	case len(r.Nonce) != nonceSize:
		return muster.Errorf(muster.Invalid, "nonce: must have %d bytes, not %d", nonceSize, len(r.Nonce))
	case len(r.Exchange) != exchangeSize:
		return muster.Errorf(muster.Invalid, "exchange: must have %d bytes, not %d", exchangeSize, len(r.Exchange))
	}
	if err := check(r.PublicKey, r.text(), r.Signature); err != nil {
		return err
	}
	if r.Server != server {
		return muster.Errorf(muster.Invalid,
			"the worker requests a session of the server with the identity %s, but this one is %s: restore server.key from a backup, or delete the worker's identity.json and join again", r.Server, server)
	}
	return CheckClock(r.At, now)
}

// transcript is what both sides saw: the signed request, and the grant.
func transcript(r *SessionRequest, g *SessionGrant) []byte {
	return text(domainGrant, r.text(), r.Signature, []byte(g.Token), timeField(g.ExpiresAt), timeField(g.At), g.Exchange)
}

// Grant answers a request that Check accepted with a token, and returns the secret of the session.
func Grant(key ed25519.PrivateKey, r *SessionRequest, token string, expires, now muster.Time) (*SessionGrant, []byte, error) {
	ephemeral, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make an ephemeral key: %w", err)
	}
	g := &SessionGrant{Token: token, ExpiresAt: expires, At: now, Exchange: ephemeral.PublicKey().Bytes()}
	signed := transcript(r, g)
	g.Signature = ed25519.Sign(key, signed)
	secret, err := derive(ephemeral, r.Exchange, signed)
	return g, secret, err
}

// Confirm checks that the server that the request names granted exactly this request, and returns the secret of the session. Its error is
// Forbidden: another server answers, or something between alters answers.
func (r *SessionRequest) Confirm(ephemeral *ecdh.PrivateKey, g *SessionGrant) ([]byte, error) {
	server, err := ParseServerID(r.Server)
	if err != nil {
		return nil, err
	}
	signed := transcript(r, g)
	if !ed25519.Verify(server, signed, g.Signature) {
		return nil, muster.Errorf(muster.Forbidden, "the server's answer is not signed with the identity key that this worker saw when it joined: another server answers, or something between them alters messages")
	}
	return derive(ephemeral, g.Exchange, signed)
}

func derive(own *ecdh.PrivateKey, other, transcript []byte) ([]byte, error) {
	public, err := ecdh.X25519().NewPublicKey(other)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "exchange: %w", err)
	}
	shared, err := own.ECDH(public)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "exchange: %w", err)
	}
	salt := sha256.Sum256(transcript)
	secret, err := hkdf.Key(sha256.New, shared, salt[:], domainSecret, SecretSize)
	if err != nil {
		return nil, fmt.Errorf("derive the session's secret: %w", err)
	}
	return secret, nil
}

// KeyHash returns the text by which the server finds a worker by its public key, of 64 characters. It is the hash of no bearer token, which has
// hexadecimal digits only, so that a public key is no token.
func KeyHash(public []byte) string { return fmt.Sprintf("ed25519:%x", sha256.Sum224(public)) }
