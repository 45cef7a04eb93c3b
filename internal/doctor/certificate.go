package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"time"

	"github.com/muster-dev/muster/internal/origin"
)

const expiresSoon = 14 * 24 * time.Hour // of a certificate

// tlsFailed reports a failed handshake with the server at host.
func tlsFailed(a *serverProbe, server, host string, err error) *serverProbe {
	var record tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	_, pinned := errors.AsType[*origin.PinError](err)
	switch {
	case errors.As(err, &record):
		return a.fail("use http:// in its URL, or enable TLS on the server with --tls", "%s does not use TLS, but its URL begins with https://", server)
	case pinned:
		return a.fail("compare the fingerprint that the server prints when it starts with that of `muster context list -o json`; if the server has a new authority: `muster login "+server+"`",
			"the certificate of %s is not of the authority that was saved: it is another server, or a proxy intercepts TLS", host)
	case errors.As(err, &unknown):
		return a.fail("save the server with a key that ends in the fingerprint of its authority, or confirm the fingerprint: `muster login "+server+"`; or trust the authority of the certificate: `export SSL_CERT_FILE=CA.crt`",
			"the certificate of %s is signed by an unknown authority", host)
	case errors.As(err, &name):
		return a.fail("use a name that the certificate is valid for", "the certificate of %s is not valid for that name: %s", host, rootCause(err))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil && time.Now().Before(invalid.Cert.NotBefore):
		return a.fail("correct this machine's clock: `sudo timedatectl set-ntp true`", "the certificate of %s is not valid before %s, and this machine's clock says %s", host, formatTime(invalid.Cert.NotBefore), formatTime(time.Now()))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return a.fail("renew it; if it looks valid, check this machine's clock", "the certificate of %s has expired, or is not valid yet", host)
	}
	return a.fail("check the server's certificate: `openssl s_client -connect "+host+":443`", "TLS with %s fails: %s", host, rootCause(err))
}

// requiresClientCert reports whether a server refused a connection for its client certificate, or for the lack of one.
func requiresClientCert(err error, u *url.URL) bool {
	return errors.Is(origin.Explain(err, u), origin.ErrClientCert)
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// certificate checks the end and the names of the server's certificate, and of its authority.
func (r *inspection) certificate(context.Context) []Finding {
	list := r.probed().certificates
	u, err := url.Parse(r.Server.URL)
	if len(list) == 0 || err != nil {
		return nil
	}
	leaf, host, trust := list[0], u.Hostname(), "an authority that this machine trusts"
	end, which, fix := leaf.NotAfter, "the server's certificate", "renew it; the server loads a changed file by itself"
	if r.Server.CA != "" {
		trust = "the saved authority"
		fix = "check the log of the server, which renews it by itself"
		for _, c := range list {
			if c.IsCA && origin.PinOf(c).String() == r.Server.CA && c.NotAfter.Before(end) {
				end, which = c.NotAfter, "the certificate of the server's authority"
			}
		}
	}
	switch remaining := time.Until(end); {
	case remaining < expiresSoon:
		return single("certificate", Warning, fix, "%s expires in %.0f days, on %s", which, remaining.Hours()/24, end.UTC().Format(time.DateOnly))
	case r.Server.TLSServerName == "" && leaf.VerifyHostname(host) != nil: // only the fingerprint counts for this program
		return single("certificate", Note, "start the server with `--tls-name "+host+"` so that browsers accept it once they trust its authority", "the server's certificate does not have the name %s", host)
	}
	return single("certificate", OK, "", "the server's certificate is valid until %s, of %s", leaf.NotAfter.UTC().Format(time.DateOnly), trust)
}
