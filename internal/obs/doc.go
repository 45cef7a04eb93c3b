// Package obs measures a server and a worker: metrics for Prometheus and traces for OpenTelemetry.
//
//	engine, API, link, worker ── hooks ──► counters and histograms (atomic, no locks held by the caller)
//	                                              │
//	scrape ── Collect ──► gauges from one picture of the fleet, with a deadline
//
// A Registry is made once for a process and passed down: there are no global metrics. The families of metrics are defined where they
// are registered, in NewServer and NewWorker; docs/metrics.md is generated from the same calls. No label has a job, a task or a
// path: what a scrape costs does not grow with the work.
//
// What is measured knows nothing of this package. The engine, the API and the agent have hooks of their own, and packages serve and
// work connect them.
//
// Traces: see trace.go and docs/adr/0041-traces.md.
package obs
