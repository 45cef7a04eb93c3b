package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// privateNetworks returns the networks of private, shared (RFC 6598) and unique local addresses.
func privateNetworks() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"),
	}
}

// parseNetworks parses a comma-separated list of networks, addresses, and the words private, loopback, none and any.
func parseNetworks(s string) ([]netip.Prefix, error) {
	words := map[string][]netip.Prefix{
		"private":  privateNetworks(),
		"loopback": {netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		"none":     {},
		"any":      {netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	}
	all := []netip.Prefix{}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "none" && part != strings.TrimSpace(s) {
			return nil, errors.New("none cannot be combined with networks")
		}
		networks, isWord := words[part]
		if ip, err := netip.ParseAddr(part); err == nil && ip.Zone() == "" {
			networks = []netip.Prefix{netip.PrefixFrom(ip, ip.BitLen())}
		} else if p, err := netip.ParsePrefix(part); err == nil {
			networks = []netip.Prefix{p.Masked()}
		} else if !isWord {
			return nil, fmt.Errorf("invalid network %q: use networks such as 203.0.113.0/24, or private, loopback, none or any", part)
		}
		all = append(all, networks...)
	}
	return all, nil
}

// formatNetworks formats networks in the form that parseNetworks reads.
func formatNetworks(all []netip.Prefix) string {
	if slices.Equal(all, privateNetworks()) {
		return "private"
	}
	if len(all) == 0 {
		return "none"
	}
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return strings.Join(texts, ",")
}
