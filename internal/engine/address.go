package engine

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
)

// lookupTimeout limits the DNS lookup of a worker's name.
const lookupTimeout = 5 * time.Second

// addressPolicy decides which address a worker may have. Tasks on other workers connect to it (to the master of a gang),
// so a worker may only name its own address: the one that it connects from, any address of the server's machine if it
// runs there, or one in the networks that the administrator lists, for machines behind NAT or with several addresses.
type addressPolicy struct {
	networks       []netip.Prefix
	lookup         func(ctx context.Context, network, host string) ([]netip.Addr, error)
	interfaceAddrs func() ([]net.Addr, error) // of this machine
}

func newAddressPolicy(networks []netip.Prefix) addressPolicy {
	return addressPolicy{networks: networks, lookup: net.DefaultResolver.LookupNetIP, interfaceAddrs: net.InterfaceAddrs}
}

// verify returns the IP address of a worker, or an error if the worker may not name it. A host name is resolved once, because
// its address may change later.
func (a *addressPolicy) verify(ctx context.Context, h *link.Hello) (string, error) {
	if h.RemoteIP == "" || h.Address == h.RemoteIP {
		return h.Address, nil
	}
	remote, err := netip.ParseAddr(h.RemoteIP)
	if err != nil {
		return "", muster.Errorf(muster.Internal, "the server does not know where worker %s connects from: %w", h.Worker, err)
	}
	claimed, err := a.resolve(ctx, h.Address)
	if err != nil {
		return "", err
	}
	isLocal := a.isLocal()
	for _, ip := range claimed {
		if ip == remote || !ip.IsUnspecified() && !ip.IsMulticast() &&
			(isLocal(remote) && isLocal(ip) || slices.ContainsFunc(a.networks, func(p netip.Prefix) bool { return p.Contains(ip) })) {
			return ip.String(), nil
		}
	}
	return "", muster.Errorf(muster.Forbidden,
		"worker %s connects from %s and may not name %s as its address: start it without --address, or list the address in --worker-addresses of the server",
		h.Worker, remote, h.Address)
}

// resolve returns the addresses of a host name or IP address.
func (a *addressPolicy) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{normalizeIP(ip)}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := a.lookup(ctx, "ip", host)
	// A name may be missing temporarily: a worker with tasks retries after this code, but not after Forbidden.
	if unknown, ok := errors.AsType[*net.DNSError](err); ok && unknown.IsNotFound {
		return nil, muster.Errorf(muster.Invalid, "no DNS address found for %s, the --address of the worker: start the worker with an IP address as --address, or without it", host)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot look up %s, the --address of the worker: %w", host, err)
	}
	for i := range found {
		found[i] = normalizeIP(found[i])
	}
	return found, nil
}

// normalizeIP removes the zone, which other machines do not know.
func normalizeIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// isLocal returns a function that reports whether an address is of this machine.
func (a *addressPolicy) isLocal() func(netip.Addr) bool {
	var own []netip.Addr
	list, err := a.interfaceAddrs()
	if err != nil {
		list = nil // only loopback addresses are known to be local
	}
	for _, l := range list {
		if p, err := netip.ParsePrefix(l.String()); err == nil {
			own = append(own, normalizeIP(p.Addr()))
		}
	}
	return func(ip netip.Addr) bool { return ip.IsLoopback() || slices.Contains(own, ip) }
}
