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
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/client"
)

const (
	expiresSoon = 14 * 24 * time.Hour // of a certificate
	maxResponse = 64 << 10            // bytes of an answer that are read
)

// serverProbe is what the server said, as far as it came.
type serverProbe struct {
	finding  Finding // server
	isMuster bool    // it is a Muster server, and the rest can be asked
	version  string  // "" where nobody with a key asked
	minSkew  time.Duration
	maxSkew  time.Duration // the server's clock is ahead of ours by something between early and late
	hasSkew  bool

	dialects []Finding // of its gateways to other systems
}

// fail is a step that failed.
func (a *serverProbe) fail(fix, format string, args ...any) *serverProbe {
	a.finding = newFinding("server", Problem, fix, format, args...)
	return a
}

// probeServer goes to the server step by step, and stops where it does not come further.
func (r *inspection) probeServer(ctx context.Context) *serverProbe {
	a := &serverProbe{}
	u, err := url.Parse(r.Server.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return a.fail("name it with --server, such as `--server http://10.0.0.5:8700`", "%q is no URL of a server", r.Server.URL)
	}
	start := time.Now()
	detail, ok := r.connect(ctx, u, a)
	if !ok {
		return a
	}
	h := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: r.effectiveTimeouts().step, DisableKeepAlives: true}, Timeout: r.effectiveTimeouts().step,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	sentAt := time.Now()
	resp, err := httpGet(ctx, h, r.Server.URL+"/healthz")
	receivedAt := time.Now()
	if err != nil {
		return a.fail("look at its log; if a proxy is between, let requests through to it with NO_PROXY="+u.Hostname(), "%s takes connections and does not answer: %s", r.Server.URL, rootCause(err))
	}
	var health struct {
		Status string `json:"status"`
	}
	switch {
	case resp.code == http.StatusBadRequest && strings.Contains(string(resp.body), "HTTPS"):
		return a.fail("write https:// in its URL", "%s speaks TLS, and its URL begins with http://", r.Server.URL)
	case resp.code != http.StatusOK || json.Unmarshal(resp.body, &health) != nil || health.Status == "":
		return a.fail("check the port: a Muster server says where it serves when it starts", "%s is no Muster server: it answers %s to /healthz", r.Server.URL, resp.status)
	}
	if date, err := http.ParseTime(resp.header.Get("Date")); err == nil {
		// The header leaves the part of the second out.
		a.minSkew, a.maxSkew, a.hasSkew = date.Sub(receivedAt), date.Add(time.Second).Sub(sentAt), true
	}
	identity, err := httpGet(ctx, h, r.Server.URL+wire.Prefix+"/whoami")
	if err != nil || !identity.isUnauthenticated() {
		status := "nothing"
		if err == nil {
			status = identity.status
		}
		return a.fail("check the URL: something else may stand before the server, or be there in its place", "%s is no Muster server: it answers %s to the question who asks", r.Server.URL, status)
	}
	a.isMuster = true
	a.finding = newFinding("server", OK, "", "%s answers in %s%s", r.Server.URL, formatMillis(receivedAt.Sub(sentAt)), detail)
	if resp, err := httpGetAs(ctx, h, cmp.Or(r.Server.Token, r.Server.JoinToken), r.Server.URL+"/readyz"); err != nil || resp.code != http.StatusOK {
		a.finding = newFinding("server", Warning, "wait a little if it has just started; else look at its log and its disk", "%s answers, and says that it is not ready: its engine or its store does not answer", r.Server.URL)
	} else {
		a.dialects = dialects(resp.body)
	}
	if t := time.Since(start); t > r.effectiveTimeouts().step {
		a.finding.Status, a.finding.Fix = Warning, "look at the network between this machine and the server"
	}
	if cert := r.checkExpiry(ctx, u); cert != nil {
		a.finding = *cert
	}
	for _, token := range []string{r.Server.Token, r.Server.JoinToken} {
		if w, err := r.whoami(ctx, r.Server.URL, token); token != "" && err == nil {
			a.version = w.Version
			break
		}
	}
	return a
}

// connect comes as far as a connection: by name, by TCP, by TLS. way says how it went.
func (r *inspection) connect(ctx context.Context, u *url.URL, a *serverProbe) (detail string, ok bool) {
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
		return ", through the proxy " + proxy.Host, true
	}
	host, port := u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	if net.ParseIP(host) == nil {
		ctx, cancel := context.WithTimeout(ctx, r.effectiveTimeouts().step)
		defer cancel()
		start := time.Now()
		if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
			a.fail("check how the name is written and `getent hosts "+host+"`, or give the server's IP address", "the name %s leads to no address: %s", host, rootCause(err))
			return "", false
		}
		detail = "; its name was looked up in " + formatMillis(time.Since(start))
	}
	ctx, cancel := context.WithTimeout(ctx, r.effectiveTimeouts().step)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		r.connectFailed(a, host, port, err)
		return "", false
	}
	defer conn.Close()
	if u.Scheme == "http" {
		return detail, true
	}
	secure := tls.Client(conn, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12})
	if err := secure.HandshakeContext(ctx); err != nil {
		tlsFailed(a, r.Server.URL, host, err)
		return "", false
	}
	return detail, true
}

func (r *inspection) connectFailed(a *serverProbe, host, port string, err error) {
	at := net.JoinHostPort(host, port)
	here := host == "localhost" || net.ParseIP(host).IsLoopback()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && here && !r.ServerSet:
		a.finding = newFinding("server", Note, "start one here with `muster up`, or name one with --server or MUSTER_SERVER", "no server is known to this user, and none listens at %s", at)
	case errors.Is(err, syscall.ECONNREFUSED) && here:
		a.fail("start it: `muster up`, or `muster server`", "nobody listens at %s", at)
	case errors.Is(err, syscall.ECONNREFUSED):
		a.fail("start the server there, with `muster server --listen :"+port+"`: one of muster up listens for its own machine only", "nobody listens at %s", at)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		a.fail("let TCP port "+port+" through the firewalls between, and check that the machine is on", "%s does not answer within %s", at, r.effectiveTimeouts().step)
	default:
		a.fail("check the network of this machine, and the address", "%s cannot be reached: %s", at, rootCause(err))
	}
}

func tlsFailed(a *serverProbe, server, host string, err error) {
	const caFix = "have the certificate signed by an authority that this machine knows, or add yours: `sudo cp CA.crt /usr/local/share/ca-certificates/ && sudo update-ca-certificates`"
	var record tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &record):
		a.fail("write http:// in its URL, or give the server TLS", "%s speaks no TLS, and its URL begins with https://", server)
	case errors.As(err, &unknown):
		a.fail(caFix, "the certificate of %s is signed by nobody whom this machine trusts", host)
	case errors.As(err, &name):
		a.fail("use a name that the certificate is for", "the certificate that %s shows is not for that name: %s", host, rootCause(err))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		a.fail("renew it; if it looks valid, check this machine's clock", "the certificate of %s has expired, or is not valid yet", host)
	default:
		a.fail("check the server's certificate: `openssl s_client -connect "+host+":443`", "TLS with %s fails: %s", host, rootCause(err))
	}
}

// checkExpiry warns of a certificate that ends soon.
func (r *inspection) checkExpiry(ctx context.Context, u *url.URL) *Finding {
	if u.Scheme != "https" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.effectiveTimeouts().step)
	defer cancel()
	conn, err := (&tls.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
	if err != nil {
		return nil // through a proxy
	}
	defer conn.Close()
	secure, ok := conn.(*tls.Conn)
	if !ok || len(secure.ConnectionState().PeerCertificates) == 0 {
		return nil
	}
	end := secure.ConnectionState().PeerCertificates[0].NotAfter
	if remaining := time.Until(end); remaining < expiresSoon {
		f := newFinding("server", Warning, "renew it", "%s answers; its certificate ends in %.0f days, on %s", r.Server.URL, remaining.Hours()/24, end.UTC().Format(time.DateOnly))
		return &f
	}
	return nil
}

// response is what a server said to one request.
type response struct {
	code   int
	status string // such as "404 Not Found"
	header http.Header
	body   []byte // at most maxResponse
}

// httpGet asks with one request.
func httpGet(ctx context.Context, h *http.Client, target string) (*response, error) {
	return httpGetAs(ctx, h, "", target)
}

// httpGetAs asks with one request that has a token, unless that is "".
func httpGetAs(ctx context.Context, h *http.Client, token, target string) (*response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody) //nolint:gosec // whoever calls the doctor says what it asks
	if err != nil {
		return nil, err
	}
	req.Header.Set("Cache-Control", "no-cache") // of a proxy, whose copy has the time of then
	req.Header.Set("User-Agent", "muster-doctor")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := h.Do(req) //nolint:gosec // the same
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return nil, err
	}
	return &response{code: resp.StatusCode, status: resp.Status, header: resp.Header, body: body}, nil
}

// isUnauthenticated reports whether it is what a Muster server says to who shows no key.
func (s *response) isUnauthenticated() bool {
	var p wire.Problem
	return json.Unmarshal(s.body, &p) == nil && p.Code == muster.Unauthenticated
}

// whoami asks a server whose a token is.
func (r *inspection) whoami(ctx context.Context, server, token string) (client.Whoami, error) {
	c, err := client.New(server, token, client.Options{Timeout: r.effectiveTimeouts().step, RetryTimeout: time.Millisecond, UserAgent: "muster-doctor"})
	if err != nil {
		return client.Whoami{}, err
	}
	return c.Whoami(ctx)
}

// rootCause is the innermost of what happened, without addresses that are told already.
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

// formatMillis writes how long something took.
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

// maxDialects bounds what is told of a server's gateways.
const maxDialects = 20

// dialects says how the gateways to other systems are, by the answer to /readyz.
func dialects(body []byte) (list []Finding) {
	var ready struct {
		Gateways []wire.Gateway `json:"gateways"`
	}
	if json.Unmarshal(body, &ready) != nil {
		return nil // an older server has none
	}
	for _, g := range ready.Gateways[:min(len(ready.Gateways), maxDialects)] {
		if g.Status == "ok" {
			list = append(list, newFinding("dialect", OK, "", "%s is served", g.Name))
			continue
		}
		list = append(list, newFinding("dialect", Problem, "mend that, or look at the server's log", "%s is not served: %s", g.Name, g.Status))
	}
	return list
}

// notReached is what is told of a server that cannot be asked, if there should be one.
func (r *inspection) notReached(name string) []Finding {
	if !r.ServerSet {
		return nil
	}
	return single(name, Note, "", "not known, because no server was reached")
}

const (
	skewWarning = 2 * time.Second
	skewProblem = 30 * time.Second
)

// skew compares the clocks.
func (r *inspection) skew(context.Context) []Finding {
	a := r.probed()
	if !a.isMuster || !a.hasSkew {
		return r.notReached("clock")
	}
	// What is surely wrong: the least that it can be.
	minimum := max(a.minSkew, -a.maxSkew, 0)
	estimate, margin := (a.minSkew+a.maxSkew)/2, (a.maxSkew-a.minSkew)/2
	if minimum == 0 {
		return single("clock", OK, "", "this machine's clock and the server's agree, as far as %.1fs can be told", margin.Seconds())
	}
	direction := "behind"
	if estimate < 0 {
		direction = "ahead of"
	}
	status := OK
	fix := ""
	if minimum > skewWarning {
		status, fix = Warning, "have both machines keep their clocks by NTP: `sudo timedatectl set-ntp true`"
	}
	if minimum > skewProblem {
		status = Problem
	}
	return single("clock", status, fix, "this machine's clock is %s the server's by %.1fs (give or take %.1fs)", direction, estimate.Abs().Seconds(), margin.Seconds())
}

// version compares the programs.
func (r *inspection) version(context.Context) []Finding {
	a := r.probed()
	if !a.isMuster || a.version == "" {
		if !r.ServerSet {
			return single("version", OK, "", "this program is %s", r.Version)
		}
		return single("version", Note, "", "this program is %s; the server's version is not known without a key", r.Version)
	}
	if a.version != r.Version {
		return single("version", Note, "use the same version on all machines: the server first, then workers, which take it up with `kill -USR2 PID` and keep their tasks",
			"this program is %s, the server %s", r.Version, a.version)
	}
	return single("version", OK, "", "this program and the server are %s", r.Version)
}

// isServer reports whether a Muster server answers at a port of this machine.
func (r *inspection) isServer(ctx context.Context, port string) bool {
	h := &http.Client{Timeout: r.effectiveTimeouts().step, Transport: &http.Transport{DisableKeepAlives: true}}
	identity, err := httpGet(ctx, h, "http://"+net.JoinHostPort("127.0.0.1", port)+wire.Prefix+"/whoami")
	return err == nil && identity.isUnauthenticated()
}

// worker asks the server for a worker.
func (r *inspection) worker(ctx context.Context, id muster.WorkerID) (muster.Worker, error) {
	c, err := client.New(r.Server.URL, r.Server.Token, client.Options{Timeout: r.effectiveTimeouts().step, RetryTimeout: time.Millisecond, UserAgent: "muster-doctor"})
	if err != nil {
		return muster.Worker{}, err
	}
	return c.Worker(ctx, string(id))
}

// redactURL is a URL without the password that may be in it.
func redactURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "that is set"
	}
	return u.Redacted()
}
