package outbound

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
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
