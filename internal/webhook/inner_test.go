package webhook

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// What the log shows of a failed attempt has neither the URL, which may hold a secret, nor the address of the server's resolver.
func TestPlain(t *testing.T) {
	lookup := &net.DNSError{Err: "no such host", Name: "hooks.example", Server: "10.255.255.53:53", IsNotFound: true}
	inside, anywhere := &Webhooks{}, &Webhooks{open: true}
	for _, err := range []error{
		&url.Error{Op: "Post", URL: "https://hooks.example/secret", Err: &net.OpError{Op: "dial", Net: "tcp", Err: lookup}},
		&url.Error{Op: "Post", URL: "https://hooks.example/secret", Err: errors.New("connection reset")},
	} {
		if text := anywhere.plain(err).Error(); strings.Contains(text, "secret") || strings.Contains(text, "10.255") || text == "" {
			t.Errorf("%v is shown as %q", err, text)
		}
	}
	if got, want := anywhere.plain(lookup).Error(), "the host hooks.example: no such host"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	refused := &url.Error{Op: "Post", URL: "https://wiki.internal/", Err: &net.OpError{Op: "dial", Net: "tcp", Err: checkAddress("10.0.0.7:443", nil)}}
	if a, b := inside.plain(refused).Error(), inside.plain(lookup).Error(); a != b || strings.Contains(a, "10.0") {
		t.Errorf("a name that is there is reported as %q, one that is not as %q", a, b)
	}
}

// Addresses are refused in whatever form they come.
func TestAllowed(t *testing.T) {
	lan := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:1::/32")}
	for address, want := range map[string]struct{ usually, lan bool }{
		"8.8.8.8":                {true, true},
		"2606:4700:4700::1111":   {true, true},
		"::ffff:8.8.8.8":         {true, true},
		"10.1.2.3":               {false, true},
		"::ffff:10.1.2.3":        {false, true},
		"::ffff:0a01:0203":       {false, true},
		"fd00:1::7":              {false, true},
		"fd00:2::7":              {false, false},
		"192.168.0.1":            {false, false},
		"127.0.0.1":              {false, false},
		"::1":                    {false, false},
		"::":                     {false, false},
		"0.0.0.0":                {false, false},
		"169.254.169.254":        {false, false},
		"::ffff:169.254.169.254": {false, false},
		"fe80::1":                {false, false},
		"fe80::1%eth0":           {false, false},
		"fc00::1":                {false, false},
		"fec0::1":                {false, false},
		"ff02::1":                {false, false},
		"::ffff:127.0.0.1":       {false, false},
		"::127.0.0.1":            {false, false}, // IPv4-compatible
		"::ffff:0:10.0.0.1":      {false, false}, // IPv4-translated
		"64:ff9b::10.0.0.1":      {false, false}, // NAT64
		"64:ff9b::a9fe:a9fe":     {false, false},
		"64:ff9b:1::10.0.0.1":    {false, false},
		"2002:a00:1::1":          {false, false}, // 6to4 of 10.0.0.1
		"2002:7f00:1::":          {false, false},
		"2001:0:4136:e378::":     {false, false}, // Teredo
		"2001:10::1":             {false, false},
		"2001:db8::1":            {false, false},
		"3fff::1":                {false, false},
		"5f00::1":                {false, false},
		"100::1":                 {false, false},
		"100.64.0.1":             {false, false},
	} {
		ip := netip.MustParseAddr(address)
		if got := allowed(ip, nil); got != want.usually {
			t.Errorf("%s: %t, want %t", address, got, want.usually)
		}
		if got := allowed(ip, lan); got != want.lan {
			t.Errorf("%s with 10.0.0.0/8 and fd00:1::/32 allowed: %t, want %t", address, got, want.lan)
		}
	}
}
