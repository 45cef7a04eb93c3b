// Package artifacturl signs URLs of artifacts: with such a URL that one file can be downloaded, without a key, until it expires.
//
// The query has the time of expiry, the SHA-256 of the file, and an HMAC-SHA256 over these and the path. Nothing is stored for a URL: it ends with its expiry, or when
// its job is removed, its task has another file of that name, or the server has another identity key.
package artifacturl

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// MaxTTL is the longest time for which URLs are valid.
const MaxTTL = 30 * 24 * time.Hour

// MinTTL is how long URLs for tasks are valid whose timeout is shorter.
const MinTTL = 24 * time.Hour

// The parameters of the query.
const (
	paramExpires   = "expires" // Unix time in seconds
	paramSHA256    = "sha256"
	paramSignature = "signature"
)

// Signer signs URLs and verifies them. It is safe for concurrent use.
type Signer struct{ key []byte }

// New returns a Signer with a key that is derived from a secret of the server.
func New(secret []byte) (*Signer, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "muster artifact URL v1", sha256.Size)
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot derive the key that signs URLs of artifacts: %w", err)
	}
	return &Signer{key}, nil
}

// Scope is what a URL is for.
type Scope struct {
	Task    muster.TaskID
	Name    string // of the artifact
	SHA256  string // the content that it has
	Expires muster.Time
}

// ForTask returns the URL of an artifact for a task that starts now: it is valid for as long as the task may run, from MinTTL to MaxTTL.
func (s *Signer) ForTask(base string, of muster.TaskID, name, sha256 string, timeout muster.Duration) string {
	ttl := min(max(timeout, muster.Duration(MinTTL)), muster.Duration(MaxTTL))
	return s.URL(base, Scope{Task: of, Name: name, SHA256: sha256, Expires: muster.NewTime(time.Now()).Add(ttl)})
}

// URL returns the URL of a file on the server with a base URL such as https://muster.example.org.
func (s *Signer) URL(base string, of Scope) string {
	expires := strconv.FormatInt(of.Expires.Std().Unix(), 10)
	return strings.TrimSuffix(base, "/") + muster.ArtifactPath(of.Task, of.Name) +
		"?" + paramExpires + "=" + expires + "&" + paramSHA256 + "=" + of.SHA256 + "&" + paramSignature + "=" + s.sign(&of, expires)
}

func (s *Signer) sign(of *Scope, expires string) string {
	mac := hmac.New(sha256.New, s.key)
	for _, part := range []string{muster.ArtifactPath(of.Task, of.Name), of.SHA256, expires} { // none has a line break
		mac.Write([]byte(part + "\n"))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// IsSigned reports whether the query of a URL has a signature, valid or not.
func IsSigned(u *url.URL) bool {
	return strings.Contains(u.RawQuery, paramSignature+"=") && u.Query().Has(paramSignature)
}

// Verify returns what a URL is for. The error is Forbidden if its signature is not valid, or if it has expired.
func (s *Signer) Verify(u *url.URL, now time.Time) (Scope, error) {
	query := u.Query()
	task, name, ok := muster.ParseArtifactPath(u.Path)
	seconds, err := strconv.ParseInt(query.Get(paramExpires), 10, 64)
	of := Scope{Task: task, Name: name, SHA256: query.Get(paramSHA256), Expires: muster.NewTime(time.Unix(seconds, 0))}
	if !ok || err != nil || !hmac.Equal([]byte(query.Get(paramSignature)), []byte(s.sign(&of, query.Get(paramExpires)))) {
		return Scope{}, muster.Errorf(muster.Forbidden, "the signature of this URL is not valid: it is for another file or server, or was changed")
	}
	if now.Unix() >= seconds {
		return Scope{}, muster.Errorf(muster.Forbidden, "this URL expired at %s: get a new one, or use an API key", of.Expires)
	}
	return of, nil
}
