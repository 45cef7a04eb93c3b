package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/origin"
)

const maxResponse = 64 << 10 // bytes of an answer

// serverProbe is what the server answered.
type serverProbe struct {
	finding  Finding
	isMuster bool   // it is a Muster server, and can be queried
	version  string // "" if unknown: that needs a key
	minSkew  time.Duration
	maxSkew  time.Duration // the server's clock is ahead of ours by between minSkew and maxSkew
	hasSkew  bool

	dialects []Finding // of its gateways

	certificates []*x509.Certificate // that it presented; nil without TLS
}

// fail sets the finding of a step that failed.
func (a *serverProbe) fail(fix, format string, args ...any) *serverProbe {
	a.finding = newFinding("server", Problem, fix, format, args...)
	return a
}

// probeServer queries the server, and finds out which step fails.
func (r *inspection) probeServer(ctx context.Context) *serverProbe {
	a := &serverProbe{}
	u, err := url.Parse(r.Server.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return a.fail("set it with --server, such as `--server http://10.0.0.5:8700`", "%q is not the URL of a server", muster.HideCredentials(r.Server.URL))
	}
	step := r.effectiveTimeouts().step
	tlsConfig, err := origin.Options{CA: r.Server.CA, ServerName: r.Server.TLSServerName, ClientCert: r.Server.ClientCert, ClientKey: r.Server.ClientKey}.TLSConfig()
	if err != nil {
		return a.fail("save it again: `muster login "+r.Server.URL+"`", "what is saved for its TLS cannot be used: %s", err)
	}
	h := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: step}).DialContext, TLSClientConfig: tlsConfig, TLSHandshakeTimeout: step, ResponseHeaderTimeout: step, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	var mu sync.Mutex // a dial may outlast its request
	var resolving, sentAt time.Time
	var tlsErr error
	detail := ""
	locked := func(f func()) {
		mu.Lock()
		defer mu.Unlock()
		f()
	}
	start := time.Now()
	resp, err := httpGet(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { locked(func() { resolving = time.Now() }) },
		DNSDone: func(httptrace.DNSDoneInfo) {
			locked(func() { detail = "; its name was resolved in " + formatMillis(time.Since(resolving)) })
		},
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { locked(func() { tlsErr = err }) },
		GotConn:          func(httptrace.GotConnInfo) { locked(func() { sentAt = time.Now() }) },
	}), h, "", r.Server.URL+"/healthz")
	receivedAt := time.Now()
	mu.Lock()
	defer mu.Unlock()
	proxy, _ := http.ProxyFromEnvironment(&http.Request{URL: u}) // the request has its error
	switch {
	case err == nil && proxy != nil:
		detail = ", through the proxy " + proxy.Host
	case err != nil && proxy == nil:
		return r.unreachable(a, u, tlsErr, err)
	case err != nil:
		return r.silent(a, u, err)
	}
	var health struct {
		Status string `json:"status"`
	}
	switch {
	case resp.StatusCode == http.StatusBadRequest && strings.Contains(string(resp.text), "HTTPS"):
		return a.fail("use https:// in its URL", "%s uses TLS, but its URL begins with http://", r.Server.URL)
	case resp.StatusCode != http.StatusOK || json.Unmarshal(resp.text, &health) != nil || health.Status == "":
		return a.fail("check the port: a Muster server prints its address when it starts", "%s is not a Muster server: it answers %s to /healthz", r.Server.URL, resp.Status)
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		// The header has no fractions of a second.
		a.minSkew, a.maxSkew, a.hasSkew = date.Sub(receivedAt), date.Add(time.Second).Sub(sentAt), true
	}
	identity, err := httpGet(ctx, h, "", r.Server.URL+wire.Prefix+"/whoami")
	if err != nil || !identity.isUnauthenticated() {
		status := "nothing"
		if err == nil {
			status = identity.Status
		}
		return a.fail("check the URL: another service or a proxy may be answering at this address", "%s is not a Muster server: it answers %s to whoami", r.Server.URL, status)
	}
	a.isMuster = true
	a.finding = newFinding("server", OK, "", "%s answers in %s%s", r.Server.URL, formatMillis(receivedAt.Sub(sentAt)), detail)
	if resp, err := httpGet(ctx, h, cmp.Or(r.Server.Token, r.Server.JoinToken), r.Server.URL+"/readyz"); err != nil || resp.StatusCode != http.StatusOK {
		a.finding = newFinding("server", Warning, "wait if it has just started; else check its log and its disk", "%s answers but is not ready: its engine or its store does not answer", r.Server.URL)
	} else {
		a.dialects = dialects(resp.text)
	}
	if t := time.Since(start); t > step {
		a.finding.Status, a.finding.Fix = Warning, "check the network between this machine and the server"
	}
	if resp.TLS != nil {
		a.certificates = resp.TLS.PeerCertificates
	}
	for _, token := range []string{r.Server.Token, r.Server.JoinToken} {
		if w, err := r.whoami(ctx, r.Server.URL, token); token != "" && err == nil {
			a.version = w.Version
			break
		}
	}
	return a
}

// unreachable reports the step of a request that failed. tlsErr is the error of the TLS handshake.
func (r *inspection) unreachable(a *serverProbe, u *url.URL, tlsErr, err error) *serverProbe {
	host, port := u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	op, _ := errors.AsType[*net.OpError](err)
	switch _, unknownHost := errors.AsType[*net.DNSError](err); {
	case unknownHost:
		return a.fail("check the name and `getent hosts "+host+"`, or use the server's IP address", "cannot resolve the name %s: %s", host, rootCause(err))
	case requiresClientCert(err, u):
		return a.fail("save the files of one: `muster login --tls-client-cert FILE --tls-client-key FILE "+r.Server.URL+"`", "%s requires a client certificate that it accepts", r.Server.URL)
	case tlsErr != nil:
		return tlsFailed(a, r.Server.URL, host, tlsErr)
	case op != nil && op.Op == "dial":
		return r.connectFailed(a, host, port, err)
	}
	return r.silent(a, u, err)
}

// silent reports a server that accepts connections but does not answer.
func (r *inspection) silent(a *serverProbe, u *url.URL, err error) *serverProbe {
	return a.fail("check its log; if there is a proxy in between, bypass it with NO_PROXY="+u.Hostname(), "%s accepts connections but does not answer: %s", r.Server.URL, rootCause(err))
}

func (r *inspection) connectFailed(a *serverProbe, host, port string, err error) *serverProbe {
	at := net.JoinHostPort(host, port)
	here := host == "localhost" || net.ParseIP(host).IsLoopback()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && here && !r.ServerSet:
		a.finding = newFinding("server", Note, "start one here with `muster up`, or set one with --server or MUSTER_SERVER", "this user has no saved server, and none listens at %s", at)
		return a
	case errors.Is(err, syscall.ECONNREFUSED) && here:
		return a.fail("start it: `muster up`, or `muster server`", "connection refused at %s", at)
	case errors.Is(err, syscall.ECONNREFUSED):
		return a.fail("start the server there with `muster server --listen :"+port+"`: that of muster up listens only for its own machine", "connection refused at %s", at)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return a.fail("open TCP port "+port+" in the firewalls in between, and check that the machine is on", "%s does not answer within %s", at, r.effectiveTimeouts().step)
	}
	return a.fail("check the network of this machine, and the address", "cannot reach %s: %s", at, rootCause(err))
}

type response struct {
	*http.Response
	text []byte // of the body, at most maxResponse
}

// httpGet sends one request, with a token unless that is "".
func httpGet(ctx context.Context, h *http.Client, token, target string) (*response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody) //nolint:gosec // the user sets the target
	if err != nil {
		return nil, err
	}
	req.Header.Set("Cache-Control", "no-cache") // a proxy's copy would have an old time
	req.Header.Set("User-Agent", "muster-doctor")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := h.Do(req) //nolint:gosec // the same
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	return &response{resp, text}, err
}

// isUnauthenticated reports whether it is a Muster server's answer to a request without a key.
func (s *response) isUnauthenticated() bool {
	var p wire.Problem
	return json.Unmarshal(s.text, &p) == nil && p.Code == muster.Unauthenticated
}

func (r *inspection) client(server, token string) (*client.Client, error) {
	o := client.Options{ClientCert: r.Server.ClientCert, ClientKey: r.Server.ClientKey, Timeout: r.effectiveTimeouts().step, RetryTimeout: time.Millisecond, UserAgent: "muster-doctor"}
	if server == r.Server.URL {
		o.CA, o.TLSServerName = r.Server.CA, r.Server.TLSServerName
	}
	return client.New(server, token, o)
}

func (r *inspection) whoami(ctx context.Context, server, token string) (client.Whoami, error) {
	c, err := r.client(server, token)
	if err != nil {
		return client.Whoami{}, err
	}
	return c.Whoami(ctx)
}

// rootCause returns the innermost error, without addresses that are in the message already.
func rootCause(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if d, ok := errors.AsType[*net.DNSError](err); ok {
		return d.Err
	}
	if o, ok := errors.AsType[*net.OpError](err); ok {
		err = o.Err
	}
	if s, ok := errors.AsType[*os.SyscallError](err); ok {
		err = s.Err
	}
	return err.Error()
}

func formatMillis(d time.Duration) string {
	if d < time.Millisecond {
		return "under 1ms"
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

func (r *inspection) server(context.Context) []Finding {
	a := r.probed()
	return append([]Finding{a.finding}, a.dialects...)
}

// maxDialects limits how many gateways are reported.
const maxDialects = 20

// dialects reports the gateways in the answer to /readyz.
func dialects(body []byte) (list []Finding) {
	var ready struct {
		Gateways []wire.Gateway `json:"gateways"`
	}
	if json.Unmarshal(body, &ready) != nil {
		return nil // an older server has none
	}
	for _, g := range ready.Gateways[:min(len(ready.Gateways), maxDialects)] {
		if g.Status == "ok" {
			list = append(list, newFinding("dialect", OK, "", "the gateway %s works", g.Name))
			continue
		}
		list = append(list, newFinding("dialect", Problem, "fix that, or check the server's log", "the gateway %s does not work: %s", g.Name, g.Status))
	}
	return list
}

// notReached is the finding if the server was not reached, unless none is configured.
func (r *inspection) notReached(name string) []Finding {
	if !r.ServerSet {
		return nil
	}
	return single(name, Note, "", "unknown: the server was not reached")
}

const (
	skewWarning = 2 * time.Second
	skewProblem = 30 * time.Second
)

func (r *inspection) skew(context.Context) []Finding {
	a := r.probed()
	if !a.isMuster || !a.hasSkew {
		return r.notReached("clock")
	}
	// What is certain: the least possible difference.
	minimum := max(a.minSkew, -a.maxSkew, 0)
	estimate, margin := (a.minSkew+a.maxSkew)/2, (a.maxSkew-a.minSkew)/2
	if minimum == 0 {
		return single("clock", OK, "", "this machine's clock and the server's agree within %.1fs", margin.Seconds())
	}
	direction := "behind"
	if estimate < 0 {
		direction = "ahead of"
	}
	status := OK
	fix := ""
	if minimum > skewWarning {
		status, fix = Warning, "synchronise the clocks of both machines with NTP: `sudo timedatectl set-ntp true`"
	}
	if minimum > skewProblem {
		status = Problem
	}
	return single("clock", status, fix, "this machine's clock is %.1fs %s the server's (±%.1fs)", estimate.Abs().Seconds(), direction, margin.Seconds())
}

func (r *inspection) version(context.Context) []Finding {
	a := r.probed()
	if !a.isMuster || a.version == "" {
		if !r.ServerSet {
			return single("version", OK, "", "this program is %s", r.Version)
		}
		return single("version", Note, "", "this program is %s; the server's version is unknown without a key", r.Version)
	}
	if a.version != r.Version {
		return single("version", Note, "use the same version on all machines: upgrade the server first, then the workers, with `kill -USR2 PID` after their binary was replaced; running tasks continue",
			"this program is %s, the server %s", r.Version, a.version)
	}
	return single("version", OK, "", "this program and the server are %s", r.Version)
}

// isServer reports whether a Muster server answers at a port of this machine.
func (r *inspection) isServer(ctx context.Context, port string) bool {
	for _, scheme := range []string{"http://", "https://"} {
		identity, err := httpGet(ctx, origin.Unverified(r.effectiveTimeouts().step), "", scheme+net.JoinHostPort("127.0.0.1", port)+wire.Prefix+"/whoami")
		if err == nil && identity.isUnauthenticated() {
			return true
		}
	}
	return false
}

// redactURL returns a URL without its password.
func redactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(invalid URL)"
	}
	return u.Redacted()
}
