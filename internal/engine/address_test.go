package engine

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// A worker's address is the one that it connects from, or one that it names and that is of the same machine or in a network
// that the administrator lists.
func TestAcceptedWorkerAddresses(t *testing.T) {
	names := map[string][]netip.Addr{
		"itself.lan": {netip.MustParseAddr("::ffff:198.51.100.9")},
		"listed.lan": {netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("10.1.2.3")},
		"other.lan":  {netip.MustParseAddr("203.0.113.1")},
	}
	a := newAddressPolicy([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("224.0.0.0/3")})
	a.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		switch found := names[host]; {
		case found != nil:
			return found, nil
		case host == "slow.lan":
			return nil, &net.DNSError{Err: "timeout", IsTimeout: true}
		}
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	a.interfaceAddrs = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}, &net.IPAddr{}}, nil
	}
	for _, tt := range []struct {
		peer, names, want string
		code              muster.Code // of the refusal
	}{
		{"198.51.100.9", "198.51.100.9", "198.51.100.9", ""},
		{"198.51.100.9", "::ffff:198.51.100.9", "198.51.100.9", ""},
		{"fe80::1", "fe80::1%eth0", "fe80::1", ""},
		{"198.51.100.9", "10.255.0.1", "10.255.0.1", ""}, // another of its interfaces
		{"198.51.100.9", "fd00::7", "fd00::7", ""},
		{"198.51.100.9", "itself.lan", "198.51.100.9", ""},
		{"198.51.100.9", "listed.lan", "10.1.2.3", ""},
		{"198.51.100.9", "198.51.100.10", "", muster.Forbidden},
		{"198.51.100.9", "192.0.2.1", "", muster.Forbidden}, // the server's
		{"198.51.100.9", "127.0.0.1", "", muster.Forbidden},
		{"198.51.100.9", "169.254.169.254", "", muster.Forbidden},
		{"198.51.100.9", "0.0.0.0", "", muster.Forbidden},
		{"198.51.100.9", "224.0.0.1", "", muster.Forbidden},
		{"198.51.100.9", "other.lan", "", muster.Forbidden},
		{"198.51.100.9", "unknown.lan", "", muster.Invalid},
		{"198.51.100.9", "slow.lan", "", muster.Unavailable}, // it comes back
		{"127.0.0.1", "192.0.2.1", "192.0.2.1", ""},          // on the server's machine
		{"192.0.2.1", "127.0.0.1", "127.0.0.1", ""},
		{"127.0.0.1", "192.0.2.2", "", muster.Forbidden},
		{"", "box-1.lan", "box-1.lan", ""}, // without a network
	} {
		got, err := a.verify(t.Context(), &link.Hello{Worker: "w", RemoteIP: tt.peer, Address: tt.names})
		if e, _ := errors.AsType[*muster.Error](err); got != tt.want || (e == nil) != (tt.code == "") || e != nil && e.Code != tt.code {
			t.Errorf("a worker at %s that names %s is at %q: %v", tt.peer, tt.names, got, err)
		}
	}
}
