package browserguard

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// A page of another site reaches a server only by a name of its own, which has a dot.
func TestHosts(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	h := NewHosts("muster.lab.example:8443", ".internal.example", "Xn--Bcher-Kva.example", "")
	for host, want := range map[string]bool{
		"127.0.0.1:8700": true, "[::1]:8700": true, "::1": true, "192.168.1.7": true, "localhost:8700": true, "app.localhost": true, "LOCALHOST.": true,
		"rig:8700": true, own: true, own + ".local:8700": true, "": true,
		"muster.lab.example": true, "muster.lab.example:1": true, "MUSTER.lab.example.": true, "a.internal.example": true, "a.b.internal.example:80": true, "xn--bcher-kva.example": true,
		"lab.example": false, "other.lab.example": false, "internal.example": false, "evilinternal.example": false,
		"evil.example": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false, "evil.example:8700": false, "1.2.3.4.5": false, "0x7f.1": false,
	} {
		if got := h.Contains(host); got != want {
			t.Errorf("%q: %v, want %v", host, got, want)
		}
	}
}

func TestGuard(t *testing.T) {
	server := httptest.NewServer(Headers(NewHosts().Guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page" {
			w.Header().Set("Content-Security-Policy", "default-src 'self'")
		}
		_, _ = io.WriteString(w, "inside")
	}))))
	defer server.Close()
	get := func(path, host string, header ...string) (int, string, http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b), resp.Header
	}
	for _, browser := range [][]string{{"User-Agent", "Mozilla/5.0 (X11)"}, {"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "same-origin"}, {"Cookie", "a=b"}, {"User-Agent", "curl/8", "Accept-Language", ""}} {
		status, body, header := get("/", "evil.example", browser...)
		if status != http.StatusMisdirectedRequest || !strings.Contains(body, "--allow-host evil.example") || header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%v: %d %s %v", browser, status, body, header)
		}
		if status, body, _ = get("/", "", browser...); status != http.StatusOK || body != "inside" {
			t.Errorf("%v, the right name: %d %s", browser, status, body)
		}
	}
	if status, _, _ := get("/", "muster.behind-a-proxy.example", "User-Agent", "node", "Accept-Language", "*", "Sec-Fetch-Mode", "cors"); status != http.StatusOK {
		t.Errorf("a program on Node.js: %d", status)
	}
	status, _, header := get("/", "muster.behind-a-proxy.example")
	if status != http.StatusOK {
		t.Errorf("a program that is no browser: %d", status)
	}
	for name, want := range map[string]string{"Content-Security-Policy": contentSecurityPolicy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if _, _, header = get("/page", ""); header.Get("Content-Security-Policy") != "default-src 'self'" {
		t.Errorf("a handler's own policy is %q", header.Get("Content-Security-Policy"))
	}
}
