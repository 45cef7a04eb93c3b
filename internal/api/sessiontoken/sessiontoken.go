// Package sessiontoken issues the tokens of workers' sessions and verifies them: JSON Web Tokens (RFC 7519) signed with Ed25519, of some minutes,
// that workers get for a signed request (package handshake).
//
// Tokens and the keys that sign them are in memory only, so no disk and no backup has them, and they end with the process: the workers of a server
// that restarts ask for new ones. A signing key is replaced after a while and verifies until the last token that it signed has expired.
package sessiontoken

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/handshake"
	"github.com/muster-dev/muster/internal/lru"
)

const (
	// Lifetime is how long a token is valid.
	Lifetime = 15 * time.Minute

	rotateEvery    = 6 * time.Hour                        // signing keys
	requestsAtOnce = 64                                   // sessions of one worker within nonceLifetime
	nonceLifetime  = 2 * time.Duration(handshake.MaxSkew) // a request is refused as late or early before and after
	maxVerified    = 10_000                               // tokens whose signature is not verified again
	sweepEvery     = time.Minute                          // expired tokens and nonces
	algorithm      = "EdDSA"                              // the only one
	tokenPrefix    = "eyJ"                                // how each JSON Web Token begins, and no API key
	expiredMessage = "the worker's session token has expired: request another one"
)

// Issuer issues and verifies tokens. It is safe for concurrent use.
type Issuer struct {
	identity ed25519.PrivateKey // of the server
	server   string             // its id
	parser   *jwt.Parser
	verified *lru.Cache[string, *session] // by the hash of the token

	mu       sync.Mutex
	current  string // id of the key that signs
	signing  map[string]*signingKey
	sessions map[string]*session             // by the id of the token
	nonces   map[string]map[string]time.Time // by hash of the worker's key: nonces and when they are forgotten
	swept    time.Time
}

type signingKey struct {
	private ed25519.PrivateKey
	made    time.Time
}

type session struct {
	keyHash string
	secret  []byte
	expires time.Time
}

// New returns an Issuer of the server with an identity key.
func New(identity ed25519.PrivateKey) *Issuer {
	server := handshake.ServerID(identity.Public().(ed25519.PublicKey)) //nolint:forcetypeassert // that of an Ed25519 key
	return &Issuer{
		identity: identity, server: server,
		parser:   jwt.NewParser(jwt.WithValidMethods([]string{algorithm}), jwt.WithIssuer(server), jwt.WithAudience(server), jwt.WithExpirationRequired()),
		verified: lru.NewCounted[string, *session](maxVerified), signing: map[string]*signingKey{}, sessions: map[string]*session{}, nonces: map[string]map[string]time.Time{},
	}
}

// Server returns the id of the server.
func (i *Issuer) Server() string { return i.server }

// IsToken reports whether a bearer token is of this kind, valid or not.
func IsToken(token string) bool {
	return strings.HasPrefix(token, tokenPrefix) && strings.Count(token, ".") == 2
}

// Issue answers a request that has a valid signature, whose public key is that of the worker with keyHash. A nonce is accepted once.
func (i *Issuer) Issue(r *handshake.SessionRequest, keyHash string) (*handshake.SessionGrant, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	i.sweep(now)
	if err := i.takeNonce(keyHash, string(r.Nonce), now); err != nil {
		return nil, err
	}
	id, expires := rand.Text(), now.Add(Lifetime)
	token, err := i.sign(jwt.RegisteredClaims{
		Issuer: i.server, Audience: jwt.ClaimStrings{i.server}, Subject: string(r.Worker), ID: id, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(expires),
	}, now)
	if err != nil {
		return nil, err
	}
	grant, secret, err := handshake.Grant(i.identity, r, token, muster.NewTime(expires), muster.NewTime(now))
	if err != nil {
		return nil, err
	}
	i.sessions[id] = &session{keyHash: keyHash, secret: secret, expires: expires}
	return grant, nil
}

// Refuse signs that the server refuses the worker of a request with a code.
func (i *Issuer) Refuse(r *handshake.SessionRequest, code muster.Code) string {
	return handshake.Refuse(i.identity, r, code)
}

// takeNonce records a nonce. The caller holds mu.
func (i *Issuer) takeNonce(keyHash, nonce string, now time.Time) error {
	nonces := i.nonces[keyHash]
	if nonces == nil {
		nonces = map[string]time.Time{}
		i.nonces[keyHash] = nonces
	}
	if _, used := nonces[nonce]; used {
		return muster.Errorf(muster.Forbidden, "this session request was used before: each request needs a new nonce")
	}
	if len(nonces) >= requestsAtOnce {
		return muster.Errorf(muster.Unavailable, "the worker has requested %d sessions within %s: wait some minutes", len(nonces), muster.Duration(nonceLifetime))
	}
	nonces[nonce] = now.Add(nonceLifetime)
	return nil
}

// sign signs with the current key, which it replaces if that is old. The caller holds mu.
func (i *Issuer) sign(claims jwt.RegisteredClaims, now time.Time) (string, error) {
	key := i.signing[i.current]
	if key == nil || now.Sub(key.made) >= rotateEvery {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return "", muster.Errorf(muster.Internal, "cannot make a signing key: %w", err)
		}
		key = &signingKey{private, now}
		i.current = rand.Text()
		i.signing[i.current] = key
	}
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims)
	token.Header["kid"] = i.current
	text, err := token.SignedString(key.private)
	if err != nil {
		return "", muster.Errorf(muster.Internal, "cannot sign a session token: %w", err)
	}
	return text, nil
}

// sweep forgets what has expired. The caller holds mu.
func (i *Issuer) sweep(now time.Time) {
	if now.Sub(i.swept) < sweepEvery {
		return
	}
	i.swept = now
	for id, s := range i.sessions {
		if !now.Before(s.expires) {
			delete(i.sessions, id)
		}
	}
	for hash, nonces := range i.nonces {
		for nonce, until := range nonces {
			if !now.Before(until) {
				delete(nonces, nonce)
			}
		}
		if len(nonces) == 0 {
			delete(i.nonces, hash)
		}
	}
	for id, key := range i.signing {
		if id != i.current && now.Sub(key.made) >= rotateEvery+Lifetime {
			delete(i.signing, id)
		}
	}
}

// Verify returns the hash of the worker's key for which a token was issued, and the secret of its session, or an Unauthenticated error.
func (i *Issuer) Verify(token string) (keyHash string, secret []byte, err error) {
	hash := auth.Hash(token)
	if s, ok := i.verified.Get(hash); ok {
		if !time.Now().Before(s.expires) {
			return "", nil, muster.Errorf(muster.Unauthenticated, expiredMessage)
		}
		return s.keyHash, s.secret, nil
	}
	var claims jwt.RegisteredClaims
	_, err = i.parser.ParseWithClaims(token, &claims, i.keyOf)
	switch {
	case errors.Is(err, jwt.ErrTokenExpired) && !errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return "", nil, muster.Errorf(muster.Unauthenticated, expiredMessage)
	case err != nil:
		return "", nil, muster.Errorf(muster.Unauthenticated, "the session token is not valid here: it was altered, or is of another server or of this one before it restarted; request another one")
	}
	i.mu.Lock()
	s := i.sessions[claims.ID]
	i.mu.Unlock()
	if s == nil {
		return "", nil, muster.Errorf(muster.Unauthenticated, expiredMessage)
	}
	i.verified.Add(hash, s)
	return s.keyHash, s.secret, nil
}

// keyOf returns the key that signed a token.
func (i *Issuer) keyOf(token *jwt.Token) (any, error) {
	id, _ := token.Header["kid"].(string)
	i.mu.Lock()
	defer i.mu.Unlock()
	if key := i.signing[id]; key != nil {
		return key.private.Public(), nil
	}
	return nil, jwt.ErrTokenUnverifiable
}
