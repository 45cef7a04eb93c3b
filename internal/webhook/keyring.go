package webhook

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/sealing"
)

// The headers of Standard Webhooks.
const (
	headerID        = "webhook-id"
	headerTimestamp = "webhook-timestamp"
	headerSignature = "webhook-signature"
)

type keyring struct {
	older      []keyring // that it replaced; they read what they sealed, and sign in addition
	signingKey []byte    // projects' secrets are derived from it
	aead       cipher.AEAD
	nonceKey   []byte // for deterministic nonces: sealing is repeatable, so that a resubmitted spec is equal
}

// newKeyring derives the keys from the stored ones, the current one first, and from the configured signing key if it is not "".
func newKeyring(stored [][]byte, configured string) (keyring, error) {
	current, err := deriveKeys(stored[0], configured)
	for _, key := range stored[1:] {
		older, olderErr := deriveKeys(key, configured)
		current.older, err = append(current.older, older), errors.Join(err, olderErr)
	}
	return current, err
}

func deriveKeys(stored []byte, configured string) (keyring, error) {
	k := keyring{signingKey: stored}
	if configured != "" {
		k.signingKey = []byte(configured)
	}
	seal, err := hkdf.Key(sha256.New, stored, nil, "muster webhook seal", sealing.KeySize)
	if err == nil {
		k.nonceKey, err = hkdf.Key(sha256.New, stored, nil, "muster webhook nonce", sealing.KeySize)
	}
	if err != nil {
		return keyring{}, fmt.Errorf("derive the webhook keys: %w", err)
	}
	block, err := aes.NewCipher(seal)
	if err == nil {
		k.aead, err = cipher.NewGCM(block)
	}
	return k, err
}

// projectSecret returns the secret of a project in the form of Standard Webhooks.
func (k *keyring) projectSecret(project string) (string, error) {
	key, err := hkdf.Key(sha256.New, k.signingKey, nil, "muster webhook project "+project, sealing.KeySize)
	if err != nil {
		return "", fmt.Errorf("derive the secret of project %s: %w", project, err)
	}
	return muster.SecretPrefix + base64.StdEncoding.EncodeToString(key), nil
}

// projectSecrets returns the secret of a project, and the different ones of older keys.
func (k *keyring) projectSecrets(project string) (secrets []string, err error) {
	for _, key := range append([]keyring{*k}, k.older...) {
		secret, err := key.projectSecret(project)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(secrets, secret) {
			secrets = append(secrets, secret)
		}
	}
	return secrets, nil
}

// seal encrypts a text so that only this server can read it, and only with the same context.
func (k *keyring) seal(text, context string) string {
	mac := hmac.New(sha256.New, k.nonceKey)
	_, _ = fmt.Fprintf(mac, "%d %s%s", len(context), context, text) // never fails
	nonce := mac.Sum(nil)[:k.aead.NonceSize()]
	return muster.SealedPrefix + base64.RawURLEncoding.EncodeToString(k.aead.Seal(nonce, nonce, []byte(text), []byte(context)))
}

// unseal decrypts a sealed text, which has no prefix.
func (k *keyring) unseal(sealed, context string) (string, bool) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	n := k.aead.NonceSize()
	if err != nil || len(raw) <= n {
		return "", false
	}
	for _, key := range append([]keyring{*k}, k.older...) {
		if text, err := key.aead.Open(nil, raw[:n], raw[n:], []byte(context)); err == nil {
			return string(text), true
		}
	}
	return "", false
}

func (k *keyring) unsealSecret(secret, url string) (string, error) {
	sealed, ok := strings.CutPrefix(secret, muster.SealedPrefix)
	if !ok {
		return secret, nil
	}
	if text, ok := k.unseal(sealed, url); ok {
		return text, nil
	}
	return "", muster.Errorf(muster.Invalid, "the secret was sealed by another server or for another URL: write the secret itself")
}

// sealURL encrypts a URL except for scheme, host and port: https://hooks.slack.com/#sealed:…. It does not change a sealed URL.
func (k *keyring) sealURL(text string) string {
	if _, _, sealed := muster.CutSealedURL(text); sealed {
		return text
	}
	origin := muster.URLOrigin(text)
	return origin + "/#" + k.seal(text, origin)
}

func (k *keyring) unsealURL(text string) (string, error) {
	origin, sealed, ok := muster.CutSealedURL(text)
	if !ok {
		return text, nil
	}
	if url, ok := k.unseal(sealed, origin); ok {
		return url, nil
	}
	return "", muster.Errorf(muster.Invalid, "the URL %s was sealed by another server or for another host: write the URL itself", muster.MaskURL(text))
}

// decodeSecret returns the signing key of a secret.
func decodeSecret(secret string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(secret, muster.SecretPrefix)
	if !ok {
		return []byte(secret), nil
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("the secret is not base64 after %s: %w", muster.SecretPrefix, err)
	}
	return key, nil
}

// sign sets the headers of Standard Webhooks, with a signature for each secret.
func sign(h http.Header, secrets []string, id string, at time.Time, body []byte) error {
	stamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		key, err := decodeSecret(secret)
		if err != nil {
			return err
		}
		mac := hmac.New(sha256.New, key)
		_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, stamp, body) // never fails
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	h.Set(headerID, id)
	h.Set(headerTimestamp, stamp)
	h.Set(headerSignature, strings.Join(signatures, " "))
	return nil
}
