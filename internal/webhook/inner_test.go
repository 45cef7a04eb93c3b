package webhook

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
)

// What the log shows of a failed attempt has neither the URL, which may hold a secret, nor the address of the server's resolver.
func TestPlain(t *testing.T) {
	lookup := &net.DNSError{Err: "no such host", Name: "hooks.example", Server: "10.255.255.53:53", IsNotFound: true}
	for _, err := range []error{
		&url.Error{Op: "Post", URL: "https://hooks.example/secret", Err: &net.OpError{Op: "dial", Net: "tcp", Err: lookup}},
		&url.Error{Op: "Post", URL: "https://hooks.example/secret", Err: errors.New("connection reset")},
	} {
		if text := plain(err).Error(); strings.Contains(text, "secret") || strings.Contains(text, "10.255") || text == "" {
			t.Errorf("%v is shown as %q", err, text)
		}
	}
	if got, want := plain(lookup).Error(), "the host hooks.example: no such host"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
