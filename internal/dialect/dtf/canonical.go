package dtf

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/muster-dev/muster"
)

// signatureAge is how old a signed message may be. There is no nonce: within it, a message can be replayed.
const signatureAge = 60 * time.Second

// errSignature is the message of a DTF coordinator for a wrong signature.
const errSignature = "Invalid message signature"

// signer signs and verifies messages with the secret_key of a coordinator. Its zero value does neither.
type signer struct{ secret string }

// enabled reports whether there is a secret.
func (s signer) enabled() bool { return s.secret != "" }

// sum returns the base64 HMAC-SHA256 of the canonical text of an object without its signature.
func (s signer) sum(v *value) string {
	unsigned := v.without("signature")
	mac := hmac.New(sha256.New, []byte(s.secret))
	mac.Write(unsigned.canonical())
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// sign encodes a message, with timestamp and signature if there is a secret.
func (s signer) sign(message any, now time.Time) ([]byte, error) {
	raw, err := json.Marshal(message)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot encode a message: %w", err)
	}
	if !s.enabled() {
		return raw, nil
	}
	v, err := parse(raw)
	if err != nil {
		return nil, err
	}
	v = v.with("timestamp", value{kind: 'i', text: strconv.FormatInt(now.Unix(), 10)})
	v = v.with("signature", value{kind: 's', text: s.sum(&v)})
	return v.canonical(), nil
}

// verify reports whether a message was signed with the secret and is not older than signatureAge. It accepts times in the future, as DTF
// does.
func (s signer) verify(v *value, now time.Time) bool {
	signature, stamp := v.member("signature"), v.member("timestamp")
	if signature == nil || signature.kind != 's' || stamp == nil {
		return false
	}
	at, ok := stamp.float()
	if !ok || math.IsNaN(at) || float64(now.UnixNano())/1e9-at > signatureAge.Seconds() {
		return false
	}
	return hmac.Equal([]byte(signature.text), []byte(s.sum(v)))
}

// float returns the number that a value is.
func (v *value) float() (float64, bool) {
	switch v.kind {
	case 'd':
		return v.number, true
	case 'i':
		f, _ := strconv.ParseFloat(v.text, 64)
		return f, true
	}
	return 0, false
}
