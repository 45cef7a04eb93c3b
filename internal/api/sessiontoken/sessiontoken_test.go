package sessiontoken_test

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/sessiontoken"
	"github.com/muster-dev/muster/internal/handshake"
)

type env struct {
	t      *testing.T
	worker ed25519.PrivateKey
	*sessiontoken.Issuer
}

func newEnv(t *testing.T) *env {
	t.Helper()
	return &env{t, newKey(t), sessiontoken.New(newKey(t))}
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (e *env) issue() (token string, secret []byte) {
	e.t.Helper()
	r, ephemeral, err := handshake.NewRequest(e.worker, "w-1", e.Server(), muster.NewTime(time.Now()))
	if err != nil {
		e.t.Fatal(err)
	}
	g, err := e.Issue(r, "hash-1")
	if err != nil {
		e.t.Fatal(err)
	}
	if secret, err = r.Confirm(ephemeral, g); err != nil {
		e.t.Fatal(err)
	}
	return g.Token, secret
}

func (e *env) refused(name, token, want string) {
	e.t.Helper()
	_, secret, err := e.Verify(token)
	if muster.CodeOf(err) != muster.Unauthenticated || !strings.Contains(err.Error(), want) || secret != nil {
		e.t.Errorf("%s: %v, want %q", name, err, want)
	}
}

func TestATokenIsOfOneWorkerAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		token, secret := e.issue()
		for range 2 { // also from the cache
			hash, got, err := e.Verify(token)
			if err != nil || hash != "hash-1" || !bytes.Equal(got, secret) || !sessiontoken.IsToken(token) {
				t.Errorf("verify: %q, %v", hash, err)
			}
		}
		time.Sleep(sessiontoken.Lifetime - time.Second)
		if _, _, err := e.Verify(token); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		e.refused("after its lifetime", token, "has expired")
		other := newEnv(t)
		other.refused("at another server", token, "not valid here")
	})
}

func TestSigningKeysRotateWithOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		first, _ := e.issue()
		time.Sleep(6*time.Hour - time.Minute)
		last, _ := e.issue()
		time.Sleep(2 * time.Minute)
		next, _ := e.issue()
		kid := func(token string) any {
			parsed, _, err := jwt.NewParser().ParseUnverified(token, &jwt.RegisteredClaims{})
			if err != nil {
				t.Fatal(err)
			}
			return parsed.Header["kid"]
		}
		if kid(first) != kid(last) || kid(last) == kid(next) {
			t.Errorf("keys %v, %v and %v", kid(first), kid(last), kid(next))
		}
		for name, token := range map[string]string{"of the key before": last, "of the new key": next} {
			if _, _, err := e.Verify(token); err != nil {
				t.Errorf("a token %s: %v", name, err)
			}
		}
	})
}

func TestARequestWorksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		r, _, err := handshake.NewRequest(e.worker, "w-1", e.Server(), muster.NewTime(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Issue(r, "hash-1"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := e.Issue(r, "hash-1"); muster.CodeOf(err) != muster.Forbidden || !strings.Contains(err.Error(), "used before") {
				t.Errorf("a repeated request: %v", err)
			}
			time.Sleep(time.Duration(handshake.MaxSkew)) // as long as its time is accepted
			e.issue()                                    // sweeps
		}
		for range 70 {
			r, _, err = handshake.NewRequest(e.worker, "w-1", e.Server(), muster.NewTime(time.Now()))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = e.Issue(r, "hash-1"); err != nil {
				break
			}
		}
		if muster.CodeOf(err) != muster.Unavailable {
			t.Errorf("the 70th request at once: %v", err)
		}
		time.Sleep(5 * time.Minute)
		e.issue()
	})
}

func TestForgedTokensAreRefused(t *testing.T) {
	e := newEnv(t)
	token, _ := e.issue()
	parsed, _, err := jwt.NewParser().ParseUnverified(token, &jwt.RegisteredClaims{})
	if err != nil {
		t.Fatal(err)
	}
	forge := func(method jwt.SigningMethod, key any, change func(*jwt.RegisteredClaims)) string {
		c := *parsed.Claims.(*jwt.RegisteredClaims)
		change(&c)
		forged := jwt.NewWithClaims(method, &c)
		forged.Header["kid"] = parsed.Header["kid"]
		text, err := forged.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	same := func(*jwt.RegisteredClaims) {}
	parts := strings.Split(token, ".")
	for name, forged := range map[string]string{
		"algorithm none":       forge(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, same),
		"a shared secret":      forge(jwt.SigningMethodHS256, []byte(e.Server()), same),
		"another signing key":  forge(jwt.SigningMethodEdDSA, newKey(t), same),
		"another signature":    parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2])),
		"no signature":         parts[0] + "." + parts[1] + ".",
		"a later end":          forge(jwt.SigningMethodEdDSA, newKey(t), func(c *jwt.RegisteredClaims) { c.ExpiresAt = jwt.NewNumericDate(time.Now().Add(time.Hour)) }),
		"the worker's own key": forge(jwt.SigningMethodEdDSA, e.worker, same),
		"nothing":              "eyJ..",
	} {
		e.refused(name, forged, "not valid here")
	}
	if _, _, err := e.Verify(token); err != nil {
		t.Errorf("the token itself: %v", err)
	}
}
