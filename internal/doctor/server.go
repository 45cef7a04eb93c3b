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
	mostAnswer  = 64 << 10            // bytes of an answer that are read
)

// answer is what the server said, as far as it came.
type answer struct {
	finding Finding // server
	muster  bool    // it is a Muster server, and the rest can be asked
	version string  // "" where nobody with a key asked
	early   time.Duration
	late    time.Duration // the server's clock is ahead of ours by something between early and late
	clocked bool

	dialects []Finding // of its gateways to other systems
}

// bad is a step that failed.
func (a *answer) bad(fix, format string, args ...any) *answer {
	a.finding = finding("server", Problem, fix, format, args...)
	return a
}

// ask goes to the server step by step, and stops where it does not come further.
func (r *round) ask(ctx context.Context) *answer {
	a := &answer{}
	u, err := url.Parse(r.Server.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return a.bad("name it with --server, such as `--server http://10.0.0.5:8700`", "%q is no URL of a server", r.Server.URL)
	}
	began := time.Now()
	way, ok := r.connect(ctx, u, a)
	if !ok {
		return a
	}
	h := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: r.patience().step, DisableKeepAlives: true}, Timeout: r.patience().step,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	asked := time.Now()
	resp, err := get(ctx, h, r.Server.URL+"/healthz")
	answered := time.Now()
	if err != nil {
		return a.bad("look at its log; if a proxy is between, let requests through to it with NO_PROXY="+u.Hostname(), "%s takes connections and does not answer: %s", r.Server.URL, bare(err))
	}
	var health struct {
		Status string `json:"status"`
	}
	switch {
	case resp.code == http.StatusBadRequest && strings.Contains(string(resp.body), "HTTPS"):
		return a.bad("write https:// in its URL", "%s speaks TLS, and its URL begins with http://", r.Server.URL)
	case resp.code != http.StatusOK || json.Unmarshal(resp.body, &health) != nil || health.Status == "":
		return a.bad("check the port: a Muster server says where it serves when it starts", "%s is no Muster server: it answers %s to /healthz", r.Server.URL, resp.status)
	}
	if date, err := http.ParseTime(resp.header.Get("Date")); err == nil {
		// The header leaves the part of the second out.
		a.early, a.late, a.clocked = date.Sub(answered), date.Add(time.Second).Sub(asked), true
	}
	who, err := get(ctx, h, r.Server.URL+wire.Prefix+"/whoami")
	if err != nil || !who.wantsKey() {
		status := "nothing"
		if err == nil {
			status = who.status
		}
		return a.bad("check the URL: something else may stand before the server, or be there in its place", "%s is no Muster server: it answers %s to the question who asks", r.Server.URL, status)
	}
	a.muster = true
	a.finding = finding("server", OK, "", "%s answers in %s%s", r.Server.URL, short(answered.Sub(asked)), way)
	if resp, err := getAs(ctx, h, cmp.Or(r.Server.Token, r.Server.JoinToken), r.Server.URL+"/readyz"); err != nil || resp.code != http.StatusOK {
		a.finding = finding("server", Warning, "wait a little if it has just started; else look at its log and its disk", "%s answers, and says that it is not ready: its engine or its store does not answer", r.Server.URL)
	} else {
		a.dialects = dialects(resp.body)
	}
	if t := time.Since(began); t > r.patience().step {
		a.finding.Status, a.finding.Fix = Warning, "look at the network between this machine and the server"
	}
	if cert := r.expiry(ctx, u); cert != nil {
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
func (r *round) connect(ctx context.Context, u *url.URL, a *answer) (way string, ok bool) {
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
		return ", through the proxy " + proxy.Host, true
	}
	host, port := u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	if net.ParseIP(host) == nil {
		ctx, cancel := context.WithTimeout(ctx, r.patience().step)
		defer cancel()
		began := time.Now()
		if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
			a.bad("check how the name is written and `getent hosts "+host+"`, or give the server's IP address", "the name %s leads to no address: %s", host, bare(err))
			return "", false
		}
		way = "; its name was looked up in " + short(time.Since(began))
	}
	ctx, cancel := context.WithTimeout(ctx, r.patience().step)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		r.unconnected(a, host, port, err)
		return "", false
	}
	defer conn.Close()
	if u.Scheme == "http" {
		return way, true
	}
	secure := tls.Client(conn, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12})
	if err := secure.HandshakeContext(ctx); err != nil {
		untrusted(a, r.Server.URL, host, err)
		return "", false
	}
	return way, true
}

func (r *round) unconnected(a *answer, host, port string, err error) {
	at := net.JoinHostPort(host, port)
	here := host == "localhost" || net.ParseIP(host).IsLoopback()
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && here && !r.Named:
		a.finding = finding("server", Note, "start one here with `muster up`, or name one with --server or MUSTER_SERVER", "no server is known to this user, and none listens at %s", at)
	case errors.Is(err, syscall.ECONNREFUSED) && here:
		a.bad("start it: `muster up`, or `muster server`", "nobody listens at %s", at)
	case errors.Is(err, syscall.ECONNREFUSED):
		a.bad("start the server there, with `muster server --listen :"+port+"`: one of muster up listens for its own machine only", "nobody listens at %s", at)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		a.bad("let TCP port "+port+" through the firewalls between, and check that the machine is on", "%s does not answer within %s", at, r.patience().step)
	default:
		a.bad("check the network of this machine, and the address", "%s cannot be reached: %s", at, bare(err))
	}
}

func untrusted(a *answer, server, host string, err error) {
	const own = "have the certificate signed by an authority that this machine knows, or add yours: `sudo cp CA.crt /usr/local/share/ca-certificates/ && sudo update-ca-certificates`"
	var record tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &record):
		a.bad("write http:// in its URL, or give the server TLS", "%s speaks no TLS, and its URL begins with https://", server)
	case errors.As(err, &unknown):
		a.bad(own, "the certificate of %s is signed by nobody whom this machine trusts", host)
	case errors.As(err, &name):
		a.bad("use a name that the certificate is for", "the certificate that %s shows is not for that name: %s", host, bare(err))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		a.bad("renew it; if it looks valid, check this machine's clock", "the certificate of %s has expired, or is not valid yet", host)
	default:
		a.bad("check the server's certificate: `openssl s_client -connect "+host+":443`", "TLS with %s fails: %s", host, bare(err))
	}
}

// expiry warns of a certificate that ends soon.
func (r *round) expiry(ctx context.Context, u *url.URL) *Finding {
	if u.Scheme != "https" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.patience().step)
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
	if left := time.Until(end); left < expiresSoon {
		f := finding("server", Warning, "renew it", "%s answers; its certificate ends in %.0f days, on %s", r.Server.URL, left.Hours()/24, end.UTC().Format(time.DateOnly))
		return &f
	}
	return nil
}

// said is what a server said to one request.
type said struct {
	code   int
	status string // such as "404 Not Found"
	header http.Header
	body   []byte // at most mostAnswer
}

// get asks with one request.
func get(ctx context.Context, h *http.Client, target string) (*said, error) {
	return getAs(ctx, h, "", target)
}

// getAs asks with one request that has a token, unless that is "".
func getAs(ctx context.Context, h *http.Client, token, target string) (*said, error) {
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
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return nil, err
	}
	return &said{code: resp.StatusCode, status: resp.Status, header: resp.Header, body: body}, nil
}

// wantsKey reports whether it is what a Muster server says to who shows no key.
func (s *said) wantsKey() bool {
	var p wire.Problem
	return json.Unmarshal(s.body, &p) == nil && p.Code == muster.Unauthenticated
}

// whoami asks a server whose a token is.
func (r *round) whoami(ctx context.Context, server, token string) (client.Whoami, error) {
	c, err := client.New(server, token, client.Options{Timeout: r.patience().step, RetryTimeout: time.Millisecond, UserAgent: "muster-doctor"})
	if err != nil {
		return client.Whoami{}, err
	}
	return c.Whoami(ctx)
}

// bare is the innermost of what happened, without addresses that are told already.
func bare(err error) string {
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

// short writes how long something took.
func short(d time.Duration) string {
	if d < time.Millisecond {
		return "under 1ms"
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

func (r *round) server(context.Context) []Finding {
	a := r.answer()
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
			list = append(list, finding("dialect", OK, "", "%s is served", g.Name))
			continue
		}
		list = append(list, finding("dialect", Problem, "mend that, or look at the server's log", "%s is not served: %s", g.Name, g.Status))
	}
	return list
}

// unasked is what is told of a server that cannot be asked, if there should be one.
func (r *round) unasked(name string) []Finding {
	if !r.Named {
		return nil
	}
	return one(name, Note, "", "not known, because no server was reached")
}

const (
	skewWarning = 2 * time.Second
	skewProblem = 30 * time.Second
)

// skew compares the clocks.
func (r *round) skew(context.Context) []Finding {
	a := r.answer()
	if !a.muster || !a.clocked {
		return r.unasked("clock")
	}
	// What is surely wrong: the least that it can be.
	least := max(a.early, -a.late, 0)
	middle, give := (a.early+a.late)/2, (a.late-a.early)/2
	if least == 0 {
		return one("clock", OK, "", "this machine's clock and the server's agree, as far as %.1fs can be told", give.Seconds())
	}
	way := "behind"
	if middle < 0 {
		way = "ahead of"
	}
	status := OK
	fix := ""
	if least > skewWarning {
		status, fix = Warning, "have both machines keep their clocks by NTP: `sudo timedatectl set-ntp true`"
	}
	if least > skewProblem {
		status = Problem
	}
	return one("clock", status, fix, "this machine's clock is %s the server's by %.1fs (give or take %.1fs)", way, middle.Abs().Seconds(), give.Seconds())
}

// version compares the programs.
func (r *round) version(context.Context) []Finding {
	a := r.answer()
	if !a.muster || a.version == "" {
		if !r.Named {
			return one("version", OK, "", "this program is %s", r.Version)
		}
		return one("version", Note, "", "this program is %s; the server's version is not known without a key", r.Version)
	}
	if a.version != r.Version {
		return one("version", Note, "use the same version on all machines: the server first, then workers, which take it up with `kill -USR2 PID` and keep their tasks",
			"this program is %s, the server %s", r.Version, a.version)
	}
	return one("version", OK, "", "this program and the server are %s", r.Version)
}

// isServer reports whether a Muster server answers at a port of this machine.
func (r *round) isServer(ctx context.Context, port string) bool {
	h := &http.Client{Timeout: r.patience().step, Transport: &http.Transport{DisableKeepAlives: true}}
	who, err := get(ctx, h, "http://"+net.JoinHostPort("127.0.0.1", port)+wire.Prefix+"/whoami")
	return err == nil && who.wantsKey()
}

// worker asks the server for a worker.
func (r *round) worker(ctx context.Context, id muster.WorkerID) (muster.Worker, error) {
	c, err := client.New(r.Server.URL, r.Server.Token, client.Options{Timeout: r.patience().step, RetryTimeout: time.Millisecond, UserAgent: "muster-doctor"})
	if err != nil {
		return muster.Worker{}, err
	}
	return c.Worker(ctx, string(id))
}

// without is a URL without the password that may be in it.
func without(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "that is set"
	}
	return u.Redacted()
}
