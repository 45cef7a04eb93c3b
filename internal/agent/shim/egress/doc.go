// Package gate is the one way out of a task's network that network: allowlist leaves:
// an HTTP proxy that reaches what the job names, and nothing else.
//
//	the task's network                 the worker's
//	loopback only
//	  program ── http_proxy ──► 127.0.0.1:3128
//	                              │ a socket that was made in there
//	                              └─── and is served here ──► Gate ──► pypi.org:443
//
// A socket belongs to the network in which it was made, whoever holds it. So the task finds a
// proxy on its own loopback device, no device leads out, and there is no address of the
// worker that it could reach in another way. It cannot look names up either: the Gate does
// that, when it has decided that the name may be reached.
//
// # What is let through
//
// CONNECT, which is how programs speak TLS through a proxy and may carry anything, and plain
// HTTP with absolute URLs. Rules are of names and addresses as the task gives them to the
// proxy. A name that turns out to be at an address which is not public is refused
// unless an entry lies in the same block of special addresses: whoever rules over the name must
// not lead tasks to the worker's own services, its neighbours, or a cloud's metadata.
//
// # What this does not do
//
// It does not look into what it carries: a server behind an address that many share can
// be asked for another of its names. It does not speak SOCKS, and carries no UDP. Programs that
// heed no http_proxy reach nobody.
package egress
