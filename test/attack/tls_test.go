//go:build unix

package attack

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/origin"
	"github.com/muster-dev/muster/internal/testkit"
)

// certificate is a certificate with its key.
type certificate struct {
	*x509.Certificate

	key crypto.Signer
}

// newCertificate makes a certificate like that of a server for 127.0.0.1, or of an authority, after change.
func newCertificate(t *testing.T, issuer *certificate, change func(*x509.Certificate)) *certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "Muster CA lab"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if issuer == nil {
		template.IsCA, template.KeyUsage, template.MaxPathLenZero = true, x509.KeyUsageCertSign, true
	} else {
		template.KeyUsage, template.IPAddresses = x509.KeyUsageDigitalSignature, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	if change != nil {
		change(template)
	}
	parent, signer := template, crypto.Signer(key)
	if issuer != nil {
		parent, signer = issuer.Certificate, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	testkit.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	testkit.NoError(t, err)
	return &certificate{parsed, key}
}

// startImpostor starts a server that presents certificates, the first of which is its own, and reads requests.
func startImpostor(t *testing.T, handler http.HandlerFunc, version uint16, chain ...*certificate) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	pair := tls.Certificate{PrivateKey: chain[0].key}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS10, MaxVersion: version}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// TestAnotherServerGetsNoKey has servers that are not the one of a token's fingerprint: none of them gets a request.
func TestAnotherServerGetsNoKey(t *testing.T) {
	t.Parallel()
	own := newCertificate(t, nil, nil)
	other := newCertificate(t, nil, nil) // with the same name
	leaf := func(issuer *certificate, change func(*x509.Certificate)) *certificate {
		return newCertificate(t, issuer, change)
	}
	below := leaf(own, func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign })
	const any13 = tls.VersionTLS13
	for name, c := range map[string]struct {
		version uint16
		chain   []*certificate
	}{
		"of another authority of the same name":              {any13, []*certificate{leaf(other, nil), other}},
		"of another authority, beside the right one":         {any13, []*certificate{leaf(other, nil), other, own}},
		"of another authority, as if of the right one":       {any13, []*certificate{leaf(other, nil), own}},
		"for clients only":                                   {any13, []*certificate{leaf(own, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), own}},
		"that has expired":                                   {any13, []*certificate{leaf(own, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }), own}},
		"that is not valid yet":                              {any13, []*certificate{leaf(own, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(30 * time.Minute) }), own}},
		"of an authority below the right one":                {any13, []*certificate{leaf(below, nil), below, own}},
		"without its authority":                              {any13, []*certificate{leaf(own, nil)}},
		"that signed itself":                                 {any13, []*certificate{newCertificate(t, nil, func(c *x509.Certificate) { c.IsCA, c.KeyUsage, c.MaxPathLenZero = false, 0, false }), own}},
		"of the right authority, with an old version of TLS": {tls.VersionTLS11, []*certificate{leaf(own, nil), own}},
	} {
		var requests atomic.Int64
		s := startImpostor(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) }, c.version, c.chain...)
		token := auth.WithPin("mst_admin_0123456789abcdef", origin.PinOf(own.Certificate).String())
		api, err := client.New(s.URL, token, client.Options{RetryTimeout: time.Millisecond})
		testkit.NoError(t, err)
		if _, err := api.Whoami(t.Context()); err == nil || requests.Load() != 0 {
			t.Errorf("a server with a certificate %s got %d requests: %v", name, requests.Load(), err)
		}
	}
	// The right one gets the key without the fingerprint.
	keys := make(chan string, 1)
	s := startImpostor(t, func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Authorization")
		_, _ = io.WriteString(w, "{}")
	}, any13, leaf(own, nil), own)
	api, err := client.New(s.URL, auth.WithPin("mst_admin_0123456789abcdef", origin.PinOf(own.Certificate).String()), client.Options{})
	testkit.NoError(t, err)
	if _, err := api.Whoami(t.Context()); err != nil {
		t.Fatal(err)
	}
	if key := <-keys; key != "Bearer mst_admin_0123456789abcdef" {
		t.Errorf("the server got %q", key)
	}
}

// TestInterceptingProxyIsRefused has a proxy whose authority the machine trusts in front of the server: commands and workers that know the server's
// fingerprint do not use it, in whichever way they got that.
func TestInterceptingProxyIsRefused(t *testing.T) {
	t.Parallel()
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{TLS: true}))
	proxyCA := newCertificate(t, nil, nil)
	var requests atomic.Int64
	proxy := startImpostor(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}, tls.VersionTLS13, newCertificate(t, proxyCA, nil), proxyCA)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	testkit.NoError(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxyCA.Raw}), 0o600))
	run := func(token, server string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), mustertest.Program(t), append(args, "--server", server)...)
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+roots, "MUSTER_TOKEN="+token, "MUSTER_CONFIG="+filepath.Join(t.TempDir(), "context.json"))
		out, err := cmd.CombinedOutput()
		if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
			t.Fatal(err)
		}
		return string(out)
	}
	if out := run(mustertest.AdminToken, proxy.URL, "ps"); requests.Load() == 0 {
		t.Fatalf("a command without a fingerprint does not trust the proxy, so that the test proves nothing: %s", out)
	}
	requests.Store(0)
	if out := run(e.AdminToken, proxy.URL, "ps"); !strings.Contains(out, "a proxy intercepts TLS") {
		t.Errorf("a command prints %s", out)
	}
	// A worker that has joined knows the fingerprint from then on, without a token.
	dir := t.TempDir()
	w := e.StartWorker("w1", dir)
	w.Signal(os.Interrupt)
	<-w.Done()
	w = mustertest.StartMuster(t, "w1", []string{"SSL_CERT_FILE=" + roots}, "worker", "--server", proxy.URL, "--data", dir, "--engine", "none")
	e.Await("the worker refuses the proxy", awaitTimeout, func() error {
		if !strings.Contains(w.Log(), "a proxy intercepts TLS") {
			return errors.New("it does not say so")
		}
		return nil
	})
	if n := requests.Load(); n != 0 {
		t.Errorf("the proxy got %d requests", n)
	}
	w.Kill()
	w = mustertest.StartMuster(t, "w1", nil, "worker", "--server", "http://"+e.Addr, "--data", dir, "--engine", "none")
	if code := w.WaitExit(awaitTimeout); code != 2 || !strings.Contains(w.Log(), "would be used without TLS") {
		t.Errorf("with http:// the worker ends with %d", code)
	}
}

// TestKeyStaysWithItsScheme redirects a request with a key from https to http.
func TestKeyStaysWithItsScheme(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer plain.Close()
	own := newCertificate(t, nil, nil)
	s := startImpostor(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}, tls.VersionTLS13, newCertificate(t, own, nil), own)
	api, err := client.New(s.URL, auth.WithPin("mst_admin_0123456789abcdef", origin.PinOf(own.Certificate).String()), client.Options{RetryTimeout: time.Millisecond})
	testkit.NoError(t, err)
	if _, err := api.Whoami(t.Context()); err == nil || requests.Load() != 0 {
		t.Errorf("%d requests followed the redirect: %v", requests.Load(), err)
	}
}

// writePEM writes a certificate and its key.
func (c *certificate) writePEM(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	testkit.NoError(t, err)
	testkit.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), 0o600))
	testkit.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return cert, key
}

// TestClientsWithoutCertificateGetNothing requires client certificates: others get no answer, not even to public paths, and a changed file of authorities
// excludes clients within seconds.
func TestClientsWithoutCertificateGetNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	forClients := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	own, other := newCertificate(t, nil, forClients), newCertificate(t, nil, forClients)
	authorities, _ := own.writePEM(t, dir, "authorities")
	address := mustertest.ReservePort(t)
	gateway := mustertest.ReservePort(t)
	server := mustertest.StartMuster(t, "server", []string{"MUSTER_ADMIN_TOKEN=" + mustertest.AdminToken, "MUSTER_JOIN_TOKEN=" + mustertest.JoinToken},
		"server", "--listen", address, "--data", filepath.Join(dir, "data"), "-o", "json", "--tls", "--tls-client-ca", authorities, "--dialect", "qubix="+gateway+",tls=on")
	var ready struct {
		AdminToken string `json:"admin_token"`
	}
	testkit.AwaitNil(t, "the server is ready", awaitTimeout, func() error {
		for line := range strings.Lines(server.Log()) {
			if strings.HasPrefix(line, "{") {
				return json.Unmarshal([]byte(line), &ready)
			}
		}
		return errors.New("it is not")
	})
	// statusAt returns the status of a public path, 0 without an answer.
	statusAt := func(address, path string, c *certificate) int {
		t.Helper()
		_, pin := auth.SplitToken(ready.AdminToken)
		o := origin.Options{CA: pin}
		if c != nil {
			o.ClientCert, o.ClientKey = c.writePEM(t, t.TempDir(), "client")
		}
		h, err := origin.NewClient(o)
		testkit.NoError(t, err)
		defer h.CloseIdleConnections()
		resp, err := h.Get("https://" + address + path)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	status := func(c *certificate) int { return statusAt(address, "/healthz", c) }
	good, foreign := newCertificate(t, own, forClients), newCertificate(t, other, forClients)
	for name, c := range map[string]*certificate{
		"no certificate":           nil,
		"one of another authority": foreign,
		"one that signed itself":   newCertificate(t, nil, forClients),
		"one that has expired":     newCertificate(t, own, func(c *x509.Certificate) { forClients(c); c.NotAfter = time.Now().Add(-time.Hour) }),
		"one for servers only":     newCertificate(t, own, nil),
		"one for anything but TLS": newCertificate(t, own, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }),
	} {
		if got := status(c); got != 0 {
			t.Errorf("a client with %s gets %d", name, got)
		}
		if got := statusAt(gateway, "/health", c); got != 0 {
			t.Errorf("a client of a gateway with %s gets %d", name, got)
		}
	}
	if got := status(good); got != http.StatusOK {
		t.Fatalf("a client with a certificate gets %d", got)
	}
	if got := statusAt(gateway, "/health", good); got != http.StatusOK {
		t.Fatalf("a client of a gateway with a certificate gets %d", got)
	}
	testkit.NoError(t, os.WriteFile(authorities, []byte("damaged"), 0o600))
	testkit.AwaitNil(t, "the damaged file is noticed", awaitTimeout, func() error {
		if got := status(good); got != http.StatusOK {
			t.Fatalf("then a client with a certificate gets %d", got)
		}
		if !strings.Contains(server.Log(), "cannot load the changed authorities of client certificates") {
			return errors.New("it is not")
		}
		return nil
	})
	other.writePEM(t, dir, "authorities")
	testkit.AwaitNil(t, "the changed file is used", awaitTimeout, func() error {
		if a, b := status(good), status(foreign); a != 0 || b != http.StatusOK {
			return fmt.Errorf("the former client gets %d, the new one %d", a, b)
		}
		return nil
	})
}

// TestGatewaysWithTLSTakeNothingInPlain registers a worker of another system with and without TLS.
func TestGatewaysWithTLSTakeNothingInPlain(t *testing.T) {
	t.Parallel()
	gateway := mustertest.ReservePort(t)
	e := newEnvFor(t, mustertest.NewWith(t, t.TempDir(), mustertest.Options{TLS: true, Flags: []string{"--dialect", "qubix=" + gateway + ",tls=on,key=required"}}))
	register := func(scheme string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, scheme+gateway+"/k/"+mustertest.JoinToken+"/api/providers/register", strings.NewReader(`{"worker_id":"w1","specs":{"cpuCores":4}}`))
		testkit.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		return e.do(r).Code
	}
	if code := register("http://"); code != http.StatusBadRequest {
		t.Errorf("without TLS the answer is %d", code)
	}
	if list, err := e.Client.Workers(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("a worker registered without TLS: %v, %v", list, err)
	}
	if code := register("https://"); code >= http.StatusBadRequest {
		t.Errorf("with TLS the answer is %d", code)
	}
}
