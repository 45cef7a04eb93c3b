package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxName is the maximum length of a name (RFC 1035).
const maxName = 253

// defaultPorts are the ports of an entry without one.
var defaultPorts = []uint16{80, 443}

// Rules are what a task may reach. They are immutable.
type Rules struct{ entries []entry }

type entry struct {
	name   string       // in lower case; a leading dot matches all names with this suffix; "" for addresses
	prefix netip.Prefix // of addresses
	port   uint16       // 0 for defaultPorts
}

// Parse parses the entries of allow_hosts: a name, *. and a suffix of names, an address, or a network such as 10.0.0.0/8, each with an optional
// port after a colon; IPv6 addresses with a port are in brackets.
func Parse(hosts []string) (*Rules, error) {
	r := &Rules{entries: make([]entry, 0, len(hosts))}
	for _, text := range hosts {
		e, err := parseEntry(text)
		if err != nil {
			return nil, fmt.Errorf("allow_hosts: %q %w", text, err)
		}
		r.entries = append(r.entries, e)
	}
	return r, nil
}

// parseEntry parses one entry. Its errors continue a sentence that begins with the entry.
func parseEntry(text string) (entry, error) {
	host, port, err := splitHostPort(text)
	if err != nil {
		return entry{}, err
	}
	if prefix, ok := parsePrefix(host); ok {
		return entry{prefix: prefix, port: port}, nil
	}
	name, wildcard := strings.CutPrefix(host, "*.")
	if name = normalizeName(name); !validName(name) {
		return entry{}, fmt.Errorf("is not a host: write one such as pypi.org, *.hf.co:443, 10.0.0.5:8080 or 10.0.0.0/8")
	}
	if wildcard {
		name = "." + name
	}
	return entry{name: name, port: port}, nil
}

// splitHostPort splits a port from a host; port is 0 if there is none.
func splitHostPort(text string) (host string, port uint16, err error) {
	host, suffix := text, ""
	if in, ok := strings.CutPrefix(text, "["); ok {
		if host, suffix, ok = strings.Cut(in, "]"); !ok {
			return "", 0, fmt.Errorf("has a bracket that is not closed")
		}
		if !strings.Contains(host, ":") {
			return "", 0, fmt.Errorf("has brackets around something that is not an IPv6 address")
		}
		if suffix == "" {
			return host, 0, nil
		}
	} else if i := strings.LastIndexByte(text, ':'); i >= 0 && strings.IndexByte(text, ':') == i {
		host, suffix = text[:i], text[i:]
	}
	if suffix == "" {
		return host, 0, nil
	}
	digits, ok := strings.CutPrefix(suffix, ":")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil || n == 0 || digits[0] == '+' {
		return "", 0, fmt.Errorf("has an invalid port: write a number from 1 to 65535")
	}
	return host, uint16(n), nil
}

// parsePrefix parses an address or a network.
func parsePrefix(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		if a.Zone() != "" {
			return netip.Prefix{}, false
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// normalizeName returns a name in the form in which names are compared.
func normalizeName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// validName reports whether a normalized name can be resolved. A name that ends in a number is invalid: some programs take it for an address.
func validName(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.ContainsFunc(label, func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
		}) {
			return false
		}
		last = label
	}
	return last[0] < '0' || last[0] > '9'
}

func (e *entry) matchesPort(port uint16) bool {
	return e.port == port || e.port == 0 && slices.Contains(defaultPorts, port)
}

// allowsName reports whether an entry allows a normalized name.
func (r *Rules) allowsName(allowsName string, port uint16) bool {
	return slices.ContainsFunc(r.entries, func(e entry) bool {
		switch {
		case e.name == "" || !e.matchesPort(port):
			return false
		case e.name[0] == '.':
			return len(allowsName) > len(e.name) && strings.HasSuffix(allowsName, e.name)
		default:
			return allowsName == e.name
		}
	})
}

// allowsAddress reports whether an entry allows an address. A special-purpose address is only allowed by an entry within its block: 0.0.0.0/0
// does not allow loopback.
func (r *Rules) allowsAddress(a netip.Addr, port uint16) bool {
	a = a.Unmap()
	block := specialBlock(a)
	return slices.ContainsFunc(r.entries, func(e entry) bool {
		return e.name == "" && e.matchesPort(port) && e.prefix.Contains(a) &&
			(!block.IsValid() || e.prefix.Bits() >= block.Bits() && block.Contains(e.prefix.Addr()))
	})
}

// specialBlocks are the addresses that are not part of the public internet: IANA's special-purpose registries (RFC 6890 and later).
var specialBlocks = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("168.63.129.16/32"), // looks public: Azure's virtual address for its machines
	netip.MustParsePrefix("::/128"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("ff00::/8"),
}

// nat64Prefix contains the IPv4 addresses in an IPv6-only network (RFC 6052).
var nat64Prefix = netip.MustParsePrefix("64:ff9b::/96")

// specialBlock returns the special-purpose block of an address; an invalid prefix for public addresses.
func specialBlock(a netip.Addr) netip.Prefix {
	for _, block := range specialBlocks {
		if block.Contains(a) {
			return block
		}
	}
	if in := a.As16(); nat64Prefix.Contains(a) && specialBlock(netip.AddrFrom4([4]byte(in[12:]))).IsValid() {
		return nat64Prefix
	}
	return netip.Prefix{}
}

// AllowsLoopback reports whether an entry allows loopback addresses, which are the worker's. The unspecified addresses count, too: a connection
// to 0.0.0.0 or :: reaches the loopback device.
func (r *Rules) AllowsLoopback() bool {
	return slices.ContainsFunc(r.entries, func(e entry) bool {
		rule := Rules{entries: []entry{{prefix: e.prefix, port: 1}}}
		return e.name == "" && (e.prefix.Addr().IsLoopback() || rule.allowsAddress(netip.IPv4Unspecified(), 1) || rule.allowsAddress(netip.IPv6Unspecified(), 1))
	})
}
