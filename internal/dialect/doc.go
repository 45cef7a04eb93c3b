// Package dialect defines the contract between Muster's server and its gateways. A gateway speaks the protocol of another
// system, so that unmodified workers and clients of that system can use Muster.
//
//	foreign worker, client ──► Gateway (package NAME) ──► Server (client, fleet) ──► this process's Muster server
//
// Each System is one package. Its gateway opens a port when it is created and serves until the context of Run ends. It
// reaches the server by HTTP as any other client does, but inside the process: a Pipe replaces the port and needs neither
// descriptors nor configuration.
//
// A gateway has a join token, by which it creates workers, and a submitter key for its project only.
// With key=required each request needs a Muster key of its own: see Listener.
package dialect
