// Package dialect is the contract between Muster's server and the gateways, by which workers and clients of other
// systems use it in their own language.
//
//	foreign worker, client ──► Gateway (package NAME) ──► Server (client, fleet) ──► this process's Muster server
//
// Each System is one package. It opens its port when it is made and serves until Run's context ends. It reaches the
// server as any other client does, by HTTP, but inside the process: a Pipe takes the place of the port, so that no
// descriptor is used and nothing has to be configured.
//
// What a gateway is given limits what it can do: a join token makes workers, and a submitter key is for its project only.
// With key=required each request needs a Muster key of its own: see Listener.
package dialect
