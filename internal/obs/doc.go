// Package obs provides the observability of servers and workers: metrics for Prometheus and traces for OpenTelemetry.
//
//	engine, API, link, worker ── hooks ──► counters and histograms (atomic, no locks held by the caller)
//	                                              │
//	scrape ── Collect ──► gauges from one snapshot of the fleet, with a deadline
//
// A process has one Registry, without global metrics. NewServer and NewWorker define the families of metrics
// and register them; docs/metrics.md is generated from the same calls. No label has a job, a task or a
// path: the cost of a scrape does not grow with the work.
//
// The measured packages do not import this one. The engine, the API and the agent have hooks, and packages serverd and
// workerd connect them.
//
// Traces: see trace.go and docs/adr/0041-traces.md.
package obs
