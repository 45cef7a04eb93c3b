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

// addresses decides at which address others reach a worker. Tasks of other workers connect to it (the master of a
// gang), so a worker may name only an address that is its own: the one from which it connects, one of the server's machine
// if it runs there, or one in the networks that the server's administrator lists, for machines with several addresses and
// behind NAT.
type addresses struct {
	networks []netip.Prefix
	lookup   func(ctx context.Context, network, host string) ([]netip.Addr, error)
	local    func() ([]net.Addr, error) // of this machine
}

func newAddresses(networks []netip.Prefix) addresses {
	return addresses{networks: networks, lookup: net.DefaultResolver.LookupNetIP, local: net.InterfaceAddrs}
}

// settle returns the IP address of a worker. A name counts as the address that it has now: it may lead elsewhere later.
func (a *addresses) settle(ctx context.Context, h *link.Hello) (string, error) {
	if h.Peer == "" || h.Address == h.Peer {
		return h.Address, nil
	}
	peer, err := netip.ParseAddr(h.Peer)
	if err != nil {
		return "", muster.Errorf(muster.Internal, "the server does not know where worker %s connects from: %w", h.Worker, err)
	}
	named, err := a.resolve(ctx, h.Address)
	if err != nil {
		return "", err
	}
	here := a.here()
	for _, ip := range named {
		if ip == peer || !ip.IsUnspecified() && !ip.IsMulticast() &&
			(here(peer) && here(ip) || slices.ContainsFunc(a.networks, func(p netip.Prefix) bool { return p.Contains(ip) })) {
			return ip.String(), nil
		}
	}
	return "", muster.Errorf(muster.Forbidden,
		"worker %s connects from %s and may not name %s as its address: start it without --address, or list the address in --worker-addresses of the server",
		h.Worker, peer, h.Address)
}

// resolve returns the addresses of a name, or of what is an address already.
func (a *addresses) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{plain(ip)}, nil
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
		found[i] = plain(found[i])
	}
	return found, nil
}

// plain is an address without what means nothing to other machines.
func plain(ip netip.Addr) netip.Addr { return ip.Unmap().WithZone("") }

// here returns what reports whether an address is of this machine.
func (a *addresses) here() func(netip.Addr) bool {
	var own []netip.Addr
	list, err := a.local()
	if err != nil {
		list = nil // loopback is
	}
	for _, l := range list {
		if p, err := netip.ParsePrefix(l.String()); err == nil {
			own = append(own, plain(p.Addr()))
		}
	}
	return func(ip netip.Addr) bool { return ip.IsLoopback() || slices.Contains(own, ip) }
}
