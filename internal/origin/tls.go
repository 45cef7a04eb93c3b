package origin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// Pin is the fingerprint of a server's certificate authority: the SHA-256 of its public key, so that a renewed certificate of the authority
// has the same one.
type Pin [sha256.Size]byte

var pinEncoding = base32.StdEncoding.WithPadding(base32.NoPadding) //nolint:gochecknoglobals // a constant

// String returns the pin as 52 lower-case characters.
func (p Pin) String() string { return strings.ToLower(pinEncoding.EncodeToString(p[:])) }

// ParsePin reads the form of String.
func ParsePin(s string) (Pin, error) {
	b, err := pinEncoding.DecodeString(strings.ToUpper(s))
	if err != nil || len(b) != len(Pin{}) {
		return Pin{}, fmt.Errorf("%q is not the fingerprint of a certificate authority: it has 52 letters and digits", s)
	}
	return Pin(b), nil
}

// PinOf returns the fingerprint of an authority.
func PinOf(authority *x509.Certificate) Pin { return sha256.Sum256(authority.RawSubjectPublicKeyInfo) }

// Options configure the connections to one server. The zero value trusts the authorities of the system.
type Options struct {
	CA                  string // the Pin of the server's own authority: only it is trusted, for any name; "" for those of the system
	ServerName          string // that the server's certificate must have; "" means the host of the URL. CA has precedence
	MaxIdleConnsPerHost int    // 0 means 2

	// ClientCert and ClientKey are PEM files with the certificate that this client presents, and its key; "" for none. They are read for
	// each connection, so that they can be renewed.
	ClientCert, ClientKey string
}

// TLSConfig returns the configuration of TLS, nil for the default one.
func (o Options) TLSConfig() (*tls.Config, error) {
	if o.CA == "" && o.ServerName == "" && o.ClientCert == "" && o.ClientKey == "" {
		return nil, nil //nolint:nilnil // http.Transport has a default
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if o.ClientCert != "" || o.ClientKey != "" {
		if _, err := o.clientCertificate(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.clientCertificate() }
	}
	if o.CA == "" {
		return c, nil
	}
	pin, err := ParsePin(o.CA)
	if err != nil {
		return nil, err
	}
	// An authority certifies one server, whose names and addresses may change: its key is what identifies it.
	c.InsecureSkipVerify = true // verify replaces the default verification
	c.VerifyConnection = pin.verify
	return c, nil
}

func (o Options) clientCertificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(o.ClientCert, o.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("cannot load the client certificate %q with the key %q: %w; set both, in PEM", o.ClientCert, o.ClientKey, err)
	}
	return &pair, nil
}

// PinError means that a server's certificate is not of the authority that the client trusts.
type PinError struct{}

// Error implements error.
func (*PinError) Error() string { return "the certificate is not of the pinned authority" }

// verify accepts a chain to the authority of the pin for server authentication. It is called for each connection.
func (p Pin) verify(s tls.ConnectionState) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for _, c := range s.PeerCertificates {
		if c.IsCA && PinOf(c) == p {
			roots.AddCert(c)
			found = true
		} else {
			intermediates.AddCert(c)
		}
	}
	if !found {
		return &PinError{}
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

// NewClient returns a client for one server, without a timeout of whole requests, since blobs may be large and streams wait. Its errors
// about certificates are *CertificateError.
func NewClient(o Options) (*http.Client, error) {
	config, err := o.TLSConfig()
	if err != nil {
		return nil, err
	}
	return Client(&http.Client{Transport: &explained{&http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		TLSClientConfig:       config,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		ExpectContinueTimeout: 5 * time.Second,
		IdleConnTimeout:       time.Minute,
		MaxIdleConnsPerHost:   o.MaxIdleConnsPerHost,
	}}}), nil
}

// NewClientFor is NewClient for the server at u and a token with a fingerprint; pin is "" for none. It refuses a fingerprint other than the
// one in o, and to use the token without TLS if there is one: what made the fingerprint uses TLS.
func NewClientFor(u *url.URL, o Options, pin string) (*http.Client, error) {
	switch {
	case pin != "" && o.CA != "" && pin != o.CA:
		return nil, muster.Errorf(muster.Invalid, "the token is of another server than the one that was saved for %s: muster login %s replaces that", u, u)
	case pin != "":
		o.CA = pin
	}
	if o.CA != "" && u.Scheme != "https" {
		return nil, muster.Errorf(muster.Invalid, "%s would be used without TLS, but the server uses TLS: write https:// in its URL", u)
	}
	c, err := NewClient(o)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "%w", err)
	}
	return c, nil
}

// explained makes a CertificateError of errors that a user can do something about.
type explained struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t *explained) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, Explain(err, r.URL)
	}
	if r.URL.Scheme == "http" && resp.StatusCode == http.StatusBadRequest && speaksTLS(resp) {
		_ = resp.Body.Close()
		return nil, &CertificateError{Reason: "it uses TLS: use https:// in its URL", Err: http.ErrSchemeMismatch}
	}
	return resp, nil
}

// tlsAnswer is how net/http answers a request without TLS on a port with TLS.
const tlsAnswer = "Client sent an HTTP request to an HTTPS server."

// speaksTLS reports whether an answer is tlsAnswer. It leaves the body as it is.
func speaksTLS(resp *http.Response) bool {
	start := make([]byte, len(tlsAnswer))
	n, _ := io.ReadFull(resp.Body, start) // an error is found by the next reader
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start[:n]), resp.Body), resp.Body}
	return string(start[:n]) == tlsAnswer
}

// CertificateError means that the server was reached, but that there is no connection as the client requires.
type CertificateError struct {
	Reason string // ends with what to do
	Err    error
}

// ErrClientCert means that the server refused the client's certificate, or the lack of one.
var ErrClientCert = errors.New("the server requires a client certificate that it accepts")

// Error implements error.
func (e *CertificateError) Error() string { return e.Reason }

// Unwrap returns the cause.
func (e *CertificateError) Unwrap() error { return e.Err }

// Explain returns a CertificateError for an error of a TLS handshake with the server at u, else err.
func Explain(err error, u *url.URL) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	_, pinned := errors.AsType[*PinError](err)
	remote, _ := errors.AsType[*net.OpError](err)
	var reason string
	switch {
	case remote != nil && remote.Op == "remote error" && strings.Contains(remote.Err.Error(), "certificate"): // an alert, which has no exported type
		err = fmt.Errorf("%w: %w", ErrClientCert, err)
		reason = "it requires a client certificate that it accepts: set --tls-client-cert and --tls-client-key with muster login or muster worker, or MUSTER_TLS_CLIENT_CERT and MUSTER_TLS_CLIENT_KEY"
	case pinned:
		reason = "its certificate is not of the authority whose fingerprint this client has: it is another server, or a proxy intercepts TLS; if the server has a new authority, use a key or join token that it printed since then"
	case errors.As(err, &unknown):
		reason = "its certificate is signed by an unknown authority: use a key or join token with the fingerprint of the server's authority, as muster server --tls prints it, or trust the authority with SSL_CERT_FILE"
	case errors.As(err, &name):
		reason = fmt.Sprintf("its certificate is not valid for %s: use a name that it has", u.Hostname())
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		reason = "its certificate has expired or is not valid yet: check the clocks of both machines, and renew it"
	case errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/":
		reason = "it does not use TLS: use http:// in its URL"
	default:
		return err
	}
	return &CertificateError{Reason: reason, Err: err}
}

// Unverified returns a client that accepts any certificate, for requests without a key.
func Unverified(timeout time.Duration) *http.Client {
	return unverified(timeout, nil)
}

// unverified is Unverified with a callback for each connection; it may be nil.
func unverified(timeout time.Duration, onConnection func(tls.ConnectionState) error) *http.Client {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: onConnection} //nolint:gosec // no secret is sent, and no answer is trusted
	return Client(&http.Client{Timeout: timeout, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, TLSHandshakeTimeout: timeout, DisableKeepAlives: true,
	}})
}

// fetchTimeout limits FetchCA.
const fetchTimeout = 10 * time.Second

// FetchCA returns the authority that the server at a URL presents: who uses it must compare its PinOf with what the server has printed.
func FetchCA(ctx context.Context, server string) (*x509.Certificate, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/healthz", http.NoBody)
	if err != nil {
		return nil, err
	}
	var authority *x509.Certificate
	errNone := errors.New("it presents no certificate authority of its own")
	resp, err := unverified(fetchTimeout, func(s tls.ConnectionState) error {
		for _, c := range s.PeerCertificates {
			if c.IsCA && PinOf(c).verify(s) == nil {
				authority = c
				return nil
			}
		}
		return errNone
	}).Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	switch {
	case authority != nil:
		return authority, nil // also if it requires a client certificate
	case err == nil:
		return nil, errors.New("it does not use TLS")
	case errors.Is(err, errNone):
		return nil, errNone
	}
	return nil, err
}
