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

// lookupTimeout is how long the look-up of a worker's name may take.
const lookupTimeout = 5 * time.Second

// addressPolicy decides at which address others reach a worker. Tasks of other workers connect to it (the master of a
// gang), so a worker may name only an address that is its own: the one from which it connects, one of the server's machine
// if it runs there, or one in the networks that the server's administrator lists, for machines with several addresses and
// behind NAT.
type addressPolicy struct {
	networks       []netip.Prefix
	lookup         func(ctx context.Context, network, host string) ([]netip.Addr, error)
	interfaceAddrs func() ([]net.Addr, error) // of this machine
}

func newAddressPolicy(networks []netip.Prefix) addressPolicy {
	return addressPolicy{networks: networks, lookup: net.DefaultResolver.LookupNetIP, interfaceAddrs: net.InterfaceAddrs}
}

// verify returns the IP address of a worker. A name counts as the address that it has now: it may lead elsewhere later.
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

// resolve returns the addresses of a name, or of what is an address already.
func (a *addressPolicy) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{normalizeIP(ip)}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := a.lookup(ctx, "ip", host)
	// A name may be missing for a moment: a worker that may have tasks keeps trying after this code, which Forbidden ends.
	if unknown, ok := errors.AsType[*net.DNSError](err); ok && unknown.IsNotFound {
		return nil, muster.Errorf(muster.Invalid, "the server finds no address of %s, which the worker names as its own: start the worker with an IP address as --address, or without it", host)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "the server cannot look up %s, which the worker names as its address: %w", host, err)
	}
	for i := range found {
		found[i] = normalizeIP(found[i])
	}
	return found, nil
}

// normalizeIP is an address without what means nothing to other machines.
func normalizeIP(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// isLocal returns what reports whether an address is of this machine.
func (a *addressPolicy) isLocal() func(netip.Addr) bool {
	var own []netip.Addr
	list, err := a.interfaceAddrs()
	if err != nil {
		list = nil // loopback is
	}
	for _, l := range list {
		if p, err := netip.ParsePrefix(l.String()); err == nil {
			own = append(own, normalizeIP(p.Addr()))
		}
	}
	return func(ip netip.Addr) bool { return ip.IsLoopback() || slices.Contains(own, ip) }
}
