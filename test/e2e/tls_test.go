package e2e

import (
	"bytes"
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
	"log/slog"
	"math/big"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/certs"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/acmetest"
	"github.com/muster-dev/muster/internal/testkit"
)

// command runs a command with only a key and the server's address, as on another machine, and returns its output.
func command(t *testing.T, c *mustertest.Cluster, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), mustertest.Program(t), args...)
	cmd.Env = append(os.Environ(), "MUSTER_SERVER="+c.URL, "MUSTER_TOKEN="+c.AdminToken, "MUSTER_CONFIG="+filepath.Join(t.TempDir(), "context.json"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must is command that has to succeed.
func must(t *testing.T, c *mustertest.Cluster, args ...string) string {
	t.Helper()
	out, err := command(t, c, args...)
	if err != nil {
		t.Fatalf("muster %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// exerciseServer uses everything that connects to a server: jobs with a folder, files and a large artifact, logs and events that are followed, a
// command in a task, and copies.
func exerciseServer(t *testing.T, c *mustertest.Cluster) {
	t.Helper()
	dir := t.TempDir()
	large := make([]byte, 20<<20)
	_, _ = rand.Read(large)
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "large"), large, 0o600))
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "job.yaml"), []byte("name: files\nfiles: .\nrun: 'cat large > \"$MUSTER_OUT/copy\"; echo copied'\n"), 0o600))
	if out := must(t, c, "submit", "--follow", filepath.Join(dir, "job.yaml")); !strings.Contains(out, "copied") {
		t.Errorf("the followed job printed %s", out)
	}
	must(t, c, "get", "last", "--dir", filepath.Join(dir, "got"))
	found := false
	testkit.NoError(t, filepath.WalkDir(filepath.Join(dir, "got"), func(path string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == "copy" {
			b, readErr := os.ReadFile(path)
			found, err = bytes.Equal(b, large), readErr
		}
		return err
	}))
	if !found {
		t.Error("the artifact is not the uploaded file")
	}
	job := c.Submit(mustertest.ShellSpec("sleeper", "exec sleep 1000"))
	c.AwaitRunning(job.ID, 1)
	task := fmt.Sprintf("%d.0", job.ID)
	if out := must(t, c, "exec", task, "--", "echo", "from the task"); out != "from the task\n" {
		t.Errorf("exec printed %q", out)
	}
	must(t, c, "cp", filepath.Join(dir, "job.yaml"), task+":copied.yaml")
	if out := must(t, c, "exec", task, "--", "cat", "copied.yaml"); !strings.Contains(out, "name: files") {
		t.Errorf("the copied file is %q", out)
	}
	must(t, c, "cancel", job.ID.String())
	if got := c.Wait(job.ID, time.Minute); got.State != muster.JobCancelled {
		t.Errorf("the job ended as %s", got.State)
	}
}

// TestTLSNeedsOnlyTheTokens runs a server with --tls, and a worker and commands that know nothing but the address and the tokens that it printed. All
// continues over a restart of the server, and a restarted worker needs no token.
func TestTLSNeedsOnlyTheTokens(t *testing.T) {
	t.Parallel()
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{TLS: true})
	testkit.Await(t, fmt.Sprintf("the server prints the tokens %s and %s", c.AdminToken, c.JoinToken), func() bool {
		return strings.Contains(c.Server.Log(), c.JoinToken) && strings.Contains(c.Server.Log(), c.AdminToken)
	})
	dir := t.TempDir()
	w := c.StartWorker("w1", dir)
	exerciseServer(t, c)
	running := c.Submit(mustertest.ShellSpec("continues", "exec sleep 1000"))
	c.AwaitRunning(running.ID, 1)
	c.Server.Kill()
	c.StartServer()
	c.AwaitWorkerState("w1", muster.WorkerActive)
	w.Kill()
	w = mustertest.StartMuster(t, "w1", nil, "worker", "--server", c.URL, "--data", dir, "--name", "w1")
	c.Await("the worker is connected", time.Minute, func() error {
		if !strings.Contains(w.Log(), "msg=connected") {
			return errors.New("it is not")
		}
		return nil
	})
	if task := c.Tasks(running.ID)[0]; task.State != muster.Running || task.Attempt != 1 {
		t.Errorf("the task is %s in attempt %d", task.State, task.Attempt)
	}
	checkDashboard(t, c)
}

// checkDashboard signs in like a browser that trusts the authority that the server offers, by the name localhost.
func checkDashboard(t *testing.T, c *mustertest.Cluster) {
	t.Helper()
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // as a user who downloads the authority
	resp, err := insecure.Get(c.URL + "/ca.crt")
	testkit.NoError(t, err)
	defer resp.Body.Close()
	authority, err := io.ReadAll(resp.Body)
	testkit.NoError(t, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		t.Fatalf("/ca.crt is %q", authority)
	}
	jar, err := cookiejar.New(nil)
	testkit.NoError(t, err)
	browser := &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	server := strings.Replace(c.URL, "127.0.0.1", "localhost", 1)
	signIn, err := browser.Post(server+"/api/v1/session", "application/json", strings.NewReader(`{"token":"`+c.AdminToken+`"}`))
	testkit.NoError(t, err)
	defer signIn.Body.Close()
	if cookies := signIn.Cookies(); signIn.StatusCode != http.StatusOK || len(cookies) != 1 || !cookies[0].Secure {
		t.Errorf("the sign-in is answered with %s and %v", signIn.Status, cookies)
	}
	jobs, err := browser.Get(server + "/api/v1/jobs")
	testkit.NoError(t, err)
	defer jobs.Body.Close()
	if jobs.StatusCode != http.StatusOK {
		t.Errorf("the dashboard gets %s", jobs.Status)
	}
}

// TestTLSWithoutWebSockets does the same behind a proxy that knows no WebSockets, so that the worker polls. The proxy ends TLS with the server's own
// authority, as one on the server's machine may.
func TestTLSWithoutWebSockets(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	c := mustertest.NewWith(t, data, mustertest.Options{TLS: true})
	target, err := url.Parse(c.URL)
	testkit.NoError(t, err)
	_, pin := auth.SplitToken(c.AdminToken)
	own, err := certs.Open(certs.Config{Own: true}, filepath.Join(data, "tls"), slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	if own.Pin() != pin {
		t.Fatal("the server has another authority than the test made")
	}
	block, _ := pem.Decode(own.Authority())
	authority, err := x509.ParseCertificate(block.Bytes)
	testkit.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
		FlushInterval: -1,
	}
	upgrades := make(chan struct{}, 1000)
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			upgrades <- struct{}{}
			http.Error(w, "no upgrades", http.StatusBadRequest)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	pair, err := own.TLSConfig().GetCertificate(&tls.ClientHelloInfo{})
	testkit.NoError(t, err)
	proxy.TLS = &tls.Config{Certificates: []tls.Certificate{*pair}, MinVersion: tls.VersionTLS12}
	proxy.StartTLS()
	defer proxy.Close()
	w := mustertest.StartMuster(t, "w1", []string{"MUSTER_JOIN_TOKEN=" + c.JoinToken}, "worker", "--server", proxy.URL, "--name", "w1", "--data", t.TempDir())
	defer w.Kill()
	c.AwaitWorkerState("w1", muster.WorkerActive)
	exerciseServer(t, c)
	if len(upgrades) == 0 {
		t.Error("the worker did not try a WebSocket: the proxy proves nothing")
	}
}

// TestTLSOfUp runs muster up with --tls, twice.
func TestTLSOfUp(t *testing.T) {
	t.Parallel()
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{TLS: true, Up: true, Flags: []string{"--name", "w1"}})
	c.AwaitWorkerState("w1", muster.WorkerActive)
	exerciseServer(t, c)
	c.Server.Kill()
	c.StartServer()
	c.AwaitWorkerState("w1", muster.WorkerActive)
}

// TestTLSIsInTheBackup restores a backup on another data directory: workers and commands, which know only the fingerprint, continue.
func TestTLSIsInTheBackup(t *testing.T) {
	t.Parallel()
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{TLS: true})
	c.StartWorker("w1", t.TempDir())
	file := filepath.Join(t.TempDir(), "backup")
	must(t, c, "backup", file)
	c.Server.Kill()
	c.DataDir = filepath.Join(t.TempDir(), "restored")
	if out, err := command(t, c, "restore", file, "--data", c.DataDir); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(filepath.Join(c.DataDir, "tls", certs.KeyName))
	testkit.NoError(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the restored key has the mode %v", info.Mode())
	}
	c.StartServer()
	c.AwaitWorkerState("w1", muster.WorkerActive)
}

// TestTLSFilesAreReplaced replaces the certificate of a server under requests, each on a connection of its own: none fails, and the new
// certificate is used within seconds. A broken one is not used.
func TestTLSFilesAreReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := certs.Config{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	own, err := certs.Open(certs.Config{Own: true, Names: []string{"muster.example"}}, dir, slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	roots := filepath.Join(dir, "roots.pem")
	testkit.NoError(t, os.WriteFile(roots, own.Authority(), 0o600))
	issue := func() (serial string) {
		t.Helper()
		issuer, err := certs.Open(certs.Config{Own: true, Names: []string{"muster.example"}}, dir, slog.New(slog.DiscardHandler))
		testkit.NoError(t, err)
		pair, err := issuer.TLSConfig().GetCertificate(&tls.ClientHelloInfo{})
		testkit.NoError(t, err)
		key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
		testkit.NoError(t, err)
		testkit.NoError(t, os.WriteFile(files.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
		testkit.NoError(t, os.WriteFile(files.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
		return pair.Leaf.SerialNumber.String()
	}
	issue()
	address := mustertest.ReservePort(t)
	env := []string{"SSL_CERT_FILE=" + roots, "MUSTER_ADMIN_TOKEN=" + mustertest.AdminToken, "MUSTER_JOIN_TOKEN=" + mustertest.JoinToken}
	server := mustertest.StartMuster(t, "up", env, "up", "--listen", address, "--data", t.TempDir(), "--tls-cert", files.CertFile, "--tls-key", files.KeyFile, "--name", "w1", "--engine", "none")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(own.Authority())
	api, err := client.New("https://"+address, mustertest.AdminToken, client.Options{HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "muster.example"}}}, RetryTimeout: time.Minute})
	testkit.NoError(t, err)
	testkit.AwaitNil(t, "the worker of up is connected", time.Minute, func() error { // it verifies the name muster.example
		w, err := api.Worker(t.Context(), "w1")
		if err == nil && w.State != muster.WorkerActive {
			err = fmt.Errorf("it is %s", w.State)
		}
		return err
	})
	presented := func() string {
		t.Helper()
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: "muster.example"}}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatalf("%v; %s", err, server.Log())
		}
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/nothing", http.NoBody)
	testkit.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "muster.example"}}}).Do(request)
	testkit.NoError(t, err)
	testkit.NoError(t, resp.Body.Close())
	if got := resp.Header.Get("Strict-Transport-Security"); got != "max-age=2592000" {
		t.Errorf("a public certificate, and the header Strict-Transport-Security is %q", got)
	}
	second := issue()
	testkit.AwaitNil(t, "the new certificate is used", 30*time.Second, func() error {
		for range 20 { // none of them may fail
			if presented() == second {
				return nil
			}
		}
		return errors.New("it is not")
	})
	testkit.NoError(t, os.WriteFile(files.KeyFile, []byte("no key"), 0o600))
	testkit.AwaitNil(t, "the broken pair is noticed", 30*time.Second, func() error {
		if got := presented(); got != second {
			t.Fatalf("%s is presented", got)
		}
		if !strings.Contains(server.Log(), "cannot load the changed certificate") {
			return errors.New("it is not")
		}
		return nil
	})
	if got := presented(); got != second {
		t.Errorf("after a broken key %s is presented", got)
	}
}

// TestACMEServer runs muster up with certificates of a public authority, for which an ACME server on this machine stands: the worker and commands, which trust
// its root like that of any site, work.
func TestACMEServer(t *testing.T) {
	address := mustertest.ReservePort(t)
	runWithACME(t, address, acmetest.Start(t, portOf(t, address), 90*24*3600))
}

// TestACMEOverHTTP does the same with an authority that cannot reach the port with TLS, only --acme-http.
func TestACMEOverHTTP(t *testing.T) {
	address := mustertest.ReservePort(t)
	runWithACME(t, mustertest.ReservePort(t), acmetest.StartHTTP(t, portOf(t, address), 90*24*3600), "--acme-http", address)
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	_, text, _ := strings.Cut(address, ":")
	port, err := strconv.Atoi(text)
	testkit.NoError(t, err)
	return port
}

// runWithACME runs a task on muster up with certificates of an authority.
func runWithACME(t *testing.T, address string, a *acmetest.Authority, flags ...string) {
	t.Helper()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	var trusted []byte
	for _, cert := range []*x509.Certificate{a.Root, a.Certificate()} {
		trusted = append(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	testkit.NoError(t, os.WriteFile(roots, trusted, 0o600))
	config := filepath.Join(t.TempDir(), "context.json")
	env := []string{"SSL_CERT_FILE=" + roots, "MUSTER_CONFIG=" + config, "MUSTER_ADMIN_TOKEN=" + mustertest.AdminToken, "MUSTER_JOIN_TOKEN=" + mustertest.JoinToken}
	mustertest.StartMuster(t, "up", env, append([]string{"up", "--listen", address, "--data", t.TempDir(), "--acme", "muster.example.com", "--acme-directory", a.Directory(), "--name", "w1", "--engine", "none"}, flags...)...)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), mustertest.Program(t), args...)
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+roots, "MUSTER_CONFIG="+config)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	testkit.AwaitNil(t, "the worker is connected", time.Minute, func() error {
		out, err := run("workers")
		if err != nil || !strings.Contains(out, "active") {
			return errors.Join(errors.New(out), err)
		}
		return nil
	})
	if out, err := run("run", "echo", "verified"); err != nil || out != "verified\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// writeClientCert makes an authority of clients and a certificate of it, and returns the files.
func writeClientCert(t *testing.T, dir string) (authority, cert, key string) {
	t.Helper()
	block := func(path, kind string, der []byte) string {
		path = filepath.Join(dir, path)
		testkit.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	testkit.NoError(t, err)
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &private.PublicKey, private)
	testkit.NoError(t, err)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "ann"}, NotBefore: root.NotBefore, NotAfter: root.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, &private.PublicKey, private)
	testkit.NoError(t, err)
	return block("clients.crt", "CERTIFICATE", rootDER), block("client.crt", "CERTIFICATE", leafDER), block("client.key", "PRIVATE KEY", der)
}

// TestClientCertificates runs muster up with --tls-client-ca: its worker, another worker and commands present a certificate, and work. Commands
// without one say what is missing.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority, cert, key := writeClientCert(t, dir)
	address := mustertest.ReservePort(t)
	config := filepath.Join(dir, "context.json")
	server := mustertest.StartMuster(t, "up", []string{"MUSTER_CONFIG=" + config, "MUSTER_ADMIN_TOKEN=" + mustertest.AdminToken, "MUSTER_JOIN_TOKEN=" + mustertest.JoinToken},
		"up", "--listen", address, "--data", filepath.Join(dir, "data"), "-o", "json", "--name", "w1", "--engine", "none", "--tls", "--tls-client-ca", authority, "--tls-client-cert", cert, "--tls-client-key", key)
	run := func(config string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), mustertest.Program(t), args...)
		cmd.Env = append(os.Environ(), "MUSTER_CONFIG="+config)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	active := func(config string, n int) {
		t.Helper()
		testkit.AwaitNil(t, fmt.Sprintf("%d workers are connected", n), time.Minute, func() error {
			if out, err := run(config, "workers"); err != nil || strings.Count(out, "active") != n {
				return errors.Join(errors.New(out), err)
			}
			return nil
		})
	}
	active(config, 1) // the context of up has the certificate
	var ready struct {
		AdminToken string `json:"admin_token"`
		JoinToken  string `json:"join_token"`
	}
	for line := range strings.Lines(server.Log()) {
		if strings.HasPrefix(line, "{") {
			testkit.NoError(t, json.Unmarshal([]byte(line), &ready))
		}
	}
	mustertest.StartMuster(t, "w2", []string{"MUSTER_JOIN_TOKEN=" + ready.JoinToken}, "worker", "--server", address, "--data", t.TempDir(), "--name", "w2", "--engine", "none", "--tls-client-cert", cert, "--tls-client-key", key)
	active(config, 2)
	token := filepath.Join(dir, "token")
	testkit.NoError(t, os.WriteFile(token, []byte(ready.AdminToken+"\n"), 0o600))
	second := filepath.Join(dir, "second.json")
	if out, err := run(second, "login", "--token-file", token, address); err == nil {
		t.Errorf("a login without a certificate succeeds: %s", out)
	}
	if out, err := run(second, "login", "--token-file", token, "--tls-client-cert", cert, address); err == nil || !strings.Contains(out, "need each other") {
		t.Errorf("a login without a key says %s", out)
	}
	if out, err := run(second, "login", "--token-file", token, "--tls-client-cert", cert, "--tls-client-key", key, address); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run(second, "run", "echo", "both are known"); err != nil || out != "both are known\n" {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run(second, "doctor"); !strings.Contains(out, "the server's certificate is valid until") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestWarningWithoutTLS checks when a server warns that others can read its connections.
func TestWarningWithoutTLS(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "127.0.0.1:0"}, ""},
		{[]string{"--listen", ":0", "--tls"}, ""},
		{[]string{"--listen", ":0"}, "connections to the server (:0) are not encrypted, so others in the network can read keys and data: use --tls"},
		{[]string{"--listen", ":0", "--dialect", "qubix=:0"}, "connections to the server (:0) and the gateway qubix (:0) are not encrypted"},
		{[]string{"--listen", ":0", "--tls", "--dialect", "qubix=:0"}, "connections to the gateway qubix (:0) are not encrypted, so others in the network can read keys and data: add tls=on to --dialect"},
		{[]string{"--listen", ":0", "--tls", "--dialect", "qubix=:0,tls=on"}, ""},
		{[]string{"--listen", ":0", "--tls", "--dialect", "qubix=127.0.0.1:0"}, ""},
	} {
		p := mustertest.StartMuster(t, "server", nil, append([]string{"server", "--data", t.TempDir(), "-o", "json"}, tc.args...)...)
		testkit.AwaitNil(t, "the server is ready", time.Minute, func() error {
			if !strings.Contains(p.Log(), `"admin_token"`) {
				return errors.New("it is not")
			}
			return nil
		})
		p.Kill()
		n := strings.Count(p.Log(), "are not encrypted")
		if (n > 0) != (tc.want != "") || n > 1 || !strings.Contains(p.Log(), tc.want) {
			t.Errorf("%v: %d warnings: %s", tc.args, n, p.Log())
		}
	}
}
