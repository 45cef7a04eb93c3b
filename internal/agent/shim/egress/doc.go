// Package egress is the HTTP proxy of network: allowlist: the only way out of a task's network, to the hosts that the job names.
//
//	the task's network                 the worker's
//	loopback only
//	  program ── http_proxy ──► 127.0.0.1:3128
//	                              │ a socket that was created in there
//	                              └─── and is served here ──► Proxy ──► pypi.org:443
//
// A socket belongs to the network namespace in which it was created, whatever process holds it. So the task has a proxy on its own loopback
// device, no device leads out, and it cannot reach any address of the worker. It cannot resolve names either: the Proxy does, once the name is
// allowed.
//
// # What is allowed
//
// CONNECT, which programs use for TLS through a proxy and which may carry anything, and plain HTTP with absolute URLs. Rules apply to names and
// addresses as the task sends them. A name that resolves to an address that is not public is denied, unless an entry is within the same
// special-purpose block: the owner of a name must not lead tasks to the worker's own services, its neighbours, or a cloud's metadata.
//
// # What this does not do
//
// It does not inspect contents: a server behind a shared address can be asked for another of its names. It does not speak SOCKS, and carries no
// UDP. Programs that ignore http_proxy reach no host.
package egress
