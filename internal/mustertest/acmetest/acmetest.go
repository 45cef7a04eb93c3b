// Package acmetest runs an ACME server for tests.
package acmetest

import (
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/letsencrypt/challtestsrv"
	pebbleca "github.com/letsencrypt/pebble/v2/ca"
	pebbledb "github.com/letsencrypt/pebble/v2/db"
	pebbleva "github.com/letsencrypt/pebble/v2/va"
	pebblewfe "github.com/letsencrypt/pebble/v2/wfe"

	"github.com/muster-dev/muster/internal/testkit"
)

// Authority is a local ACME server, Pebble, for which every name is this machine.
type Authority struct {
	*httptest.Server

	Roots  *x509.CertPool    // of the certificates that it issues
	Root   *x509.Certificate // the same
	Orders atomic.Int64      // that it got
	Down   atomic.Bool       // whether it closes all connections
}

// Start starts Pebble, which verifies names at a port of this machine with TLS, and whose certificates are valid for some seconds. It refuses a fifth of all
// nonces.
func Start(t *testing.T, port int, validity uint64) *Authority {
	t.Helper()
	return start(t, unused, port, validity)
}

// StartHTTP is Start, but Pebble reaches only a port without TLS.
func StartHTTP(t *testing.T, port int, validity uint64) *Authority {
	t.Helper()
	return start(t, port, unused, validity)
}

const unused = 1 // a port at which nothing listens

func start(t *testing.T, httpPort, tlsPort int, validity uint64) *Authority {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "20")
	discard := slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	dns, err := net.ListenPacket("udp", "127.0.0.1:0") // a free port
	testkit.NoError(t, err)
	dnsAddress := dns.LocalAddr().String()
	testkit.NoError(t, dns.Close())
	names, err := challtestsrv.New(challtestsrv.Config{DNSAddrs: []string{dnsAddress}, Log: discard})
	testkit.NoError(t, err)
	names.SetDefaultDNSIPv4("127.0.0.1")
	names.SetDefaultDNSIPv6("")
	go names.Run()
	t.Cleanup(names.Shutdown)

	store := pebbledb.NewMemoryStore()
	issuer := pebbleca.New(discard, store, "", "ecdsa", 0, 1, map[string]pebbleca.Profile{"default": {Description: "default", ValidityPeriod: validity}})
	verifier := pebbleva.New(discard, httpPort, tlsPort, true, dnsAddress, store)
	front := pebblewfe.New(discard, store, verifier, issuer, []string{"pebble.example"}, true, false, 1, 1)
	handler := front.Handler()
	a := &Authority{Roots: x509.NewCertPool()}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.Down.Load() {
			panic(http.ErrAbortHandler) // it closes the connection
		}
		if strings.Contains(r.URL.Path, "order-plz") {
			a.Orders.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	root, err := x509.ParseCertificate(issuer.GetRootCert(0).DER)
	testkit.NoError(t, err)
	a.Root = root
	a.Roots.AddCert(root)
	return a
}

// Directory returns the URL of its directory.
func (a *Authority) Directory() string { return a.URL + pebblewfe.DirectoryPath }
