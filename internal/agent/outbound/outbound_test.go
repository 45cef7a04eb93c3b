package outbound

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
)

func TestPublic(t *testing.T) {
	for _, a := range []string{"8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "100.63.0.1", "172.32.0.1"} {
		if !IsPublic(netip.MustParseAddr(a)) {
			t.Errorf("%s is rejected", a)
		}
	}
	for _, a := range []string{
		"127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "0.1.2.3", "100.64.0.1", "224.0.0.1",
		"255.255.255.255", "240.0.0.1", "::", "::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
		"64:ff9b::7f00:1", "2002:7f00:1::", "fec0::1", "198.18.0.1", "::7f00:1", "::ffff:0:7f00:1", "64:ff9b:1::1", "100::1", "192.88.99.1",
	} {
		if IsPublic(netip.MustParseAddr(a)) {
			t.Errorf("%s counts as public", a)
		}
	}
}

// TestRedirectToAnotherHostDropsKeys checks that a redirect keeps the headers only within its host.
func TestRedirectToAnotherHostDropsKeys(t *testing.T) {
	var key []string
	seen := func(_ http.ResponseWriter, r *http.Request) { key = append(key, r.Host+" "+r.Header.Get("X-Api-Key")) }
	other := httptest.NewServer(http.HandlerFunc(seen))
	defer other.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/there", seen)
	first := httptest.NewServer(mux)
	defer first.Close()
	client := &http.Client{CheckRedirect: Redirects(2)}
	for path, want := range map[string]string{"/away": other.Listener.Addr().String() + " ", "/here": first.Listener.Addr().String() + " k"} {
		key = nil
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, first.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", "k")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if len(key) != 1 || key[0] != want {
			t.Errorf("%s: received %q, want %q", path, key, want)
		}
	}
}

// FuzzPublic compares with the ranges that machines and their neighbors use, in all forms that carry an IPv4 address.
func FuzzPublic(f *testing.F) {
	for _, a := range []string{"8.8.8.8", "127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "fe80::1", "2606:4700::1111"} {
		f.Add(netip.MustParseAddr(a).AsSlice())
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		a, ok := netip.AddrFromSlice(bytes)
		if !ok || !IsPublic(a) {
			return
		}
		if a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || a.Is4In6() && !IsPublic(a.Unmap()) {
			t.Errorf("%s is public", a)
		}
		if a.Is4() { // in any other form it is the same address or none
			b := a.As4()
			for _, form := range [][]byte{
				append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, b[:]...), append([]byte{0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0}, b[:]...),
				{0x20, 0x02, b[0], b[1], b[2], b[3], 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
			} {
				if IsPublic(netip.AddrFrom16([16]byte(form))) {
					t.Errorf("%s carries an address and is public", netip.AddrFrom16([16]byte(form)))
				}
			}
		}
	})
}

// FuzzCheck reads arbitrary URLs as requests do: what is accepted has a host, and is requested by HTTP.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{"http://example.com", "https://u:p@[::1]:80/", "file:///etc/passwd", "http:///x", "//x", "gopher://x", "HTTP://x", "http://:80", "http://:", "http://\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil || CheckScheme(u) != nil {
			return
		}
		if r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), http.NoBody); err == nil && (r.URL.Hostname() == "" || r.URL.Scheme != "http" && r.URL.Scheme != "https") {
			t.Errorf("%q is requested from %q by %s", text, r.URL.Host, r.URL.Scheme)
		}
	})
}

// TestOnlySignedURLsOfTheServerAreExcepted checks which requests to private addresses are possible.
func TestOnlySignedURLsOfTheServerAreExcepted(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	})
	server, other := httptest.NewServer(handler), httptest.NewServer(handler)
	defer server.Close()
	defer other.Close()
	client := &http.Client{Transport: ExceptServer(server.URL+"/", http.DefaultTransport, Transport(false)), CheckRedirect: Redirects(2)}
	for _, c := range []struct {
		method, url string
		ok          bool
	}{
		{http.MethodGet, server.URL + "/a?signature=x", true},
		{http.MethodGet, server.URL + "/a", false},
		{http.MethodPost, server.URL + "/a?signature=x", false},
		{http.MethodGet, other.URL + "/a?signature=x", false},
		{http.MethodGet, server.URL + "/a?signature=x&to=" + url.QueryEscape(other.URL+"/?signature=x"), false},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if (err == nil) != c.ok {
			t.Errorf("%s %s: %v", c.method, c.url, err)
		}
	}
}
