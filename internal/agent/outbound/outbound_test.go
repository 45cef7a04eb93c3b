package outbound

import (
	"net/netip"
	"testing"
)

func TestPublic(t *testing.T) {
	for _, a := range []string{"8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "100.63.0.1", "172.32.0.1"} {
		if !public(netip.MustParseAddr(a)) {
			t.Errorf("%s is refused", a)
		}
	}
	for _, a := range []string{
		"127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "0.1.2.3", "100.64.0.1", "224.0.0.1",
		"255.255.255.255", "240.0.0.1", "::", "::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
		"64:ff9b::7f00:1", "2002:7f00:1::", "fec0::1", "198.18.0.1",
	} {
		if public(netip.MustParseAddr(a)) {
			t.Errorf("%s is taken for public", a)
		}
	}
}
