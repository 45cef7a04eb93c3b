package origin_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/origin"
	"github.com/muster-dev/muster/internal/testkit"
)

func TestPinText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p origin.Pin
		copy(p[:], rapid.SliceOfN(rapid.Byte(), len(p), len(p)).Draw(t, "pin"))
		text := p.String()
		if got, err := origin.ParsePin(text); err != nil || got != p || len(text) != 52 {
			t.Fatalf("%x is %q, which is read as %x: %v", p, text, got, err)
		}
	})
	for _, bad := range []string{"", "a", strings.Repeat("a", 51), strings.Repeat("a", 53), strings.Repeat("1", 52), strings.Repeat("a", 56)} {
		if _, err := origin.ParsePin(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestSchemes checks what users read who use http for a server with TLS, or https for one without, or who trust neither.
func TestSchemes(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such job", http.StatusBadRequest) })
	plain, encrypted := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer plain.Close()
	defer encrypted.Close()
	c, err := origin.NewClient(origin.Options{})
	testkit.NoError(t, err)
	defer c.CloseIdleConnections()
	for address, want := range map[string]string{
		"http://" + encrypted.Listener.Addr().String(): "it uses TLS: use https://",
		"https://" + plain.Listener.Addr().String():    "it does not use TLS: use http://",
		encrypted.URL: "unknown authority",
	} {
		resp, err := c.Get(address)
		if err == nil {
			_ = resp.Body.Close()
		}
		if explained, ok := errors.AsType[*origin.CertificateError](err); !ok || !strings.Contains(explained.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	resp, err := c.Get(plain.URL)
	testkit.NoError(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("an ordinary refusal is %v", resp.Status)
	}
	body := make([]byte, 64)
	n, _ := resp.Body.Read(body)
	if got := string(body[:n]); got != "no such job\n" {
		t.Errorf("its body is %q", got)
	}
}

// TestFingerprintRequiresTLS checks that a fingerprint is never ignored.
func TestFingerprintRequiresTLS(t *testing.T) {
	t.Parallel()
	one, other := origin.Pin{1}.String(), origin.Pin{2}.String()
	for _, c := range []struct{ address, ca, pin, want string }{
		{"https://lab", one, "", ""},
		{"https://lab", "", one, ""},
		{"https://lab", one, one, ""},
		{"http://lab", "", "", ""},
		{"http://lab", one, "", "without TLS"},
		{"http://lab", "", one, "without TLS"},
		{"https://lab", one, other, "of another server"},
		{"https://lab", "x", "", "is not the fingerprint"},
	} {
		u, err := url.Parse(c.address)
		testkit.NoError(t, err)
		_, err = origin.NewClientFor(u, origin.Options{CA: c.ca}, c.pin)
		if (err == nil) != (c.want == "") || err != nil && (muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
