package obs

import "github.com/prometheus/client_golang/prometheus"

// Bridge has the metrics of the bridges to a foreign system in one process.
type Bridge struct {
	accepted prometheus.Counter
	pending  prometheus.Gauge
	reports  [2]prometheus.Counter
	retries  *prometheus.CounterVec
}

// NewBridge registers the metrics of bridges.
func NewBridge(r *Registry) *Bridge { return newBridge(&registrar{reg: r.reg}) }

func newBridge(s *registrar) *Bridge {
	b := &Bridge{}
	b.accepted = s.counter("muster_bridge_jobs_accepted_total", "Jobs accepted from the foreign server.")
	b.pending = s.gauge("muster_bridge_jobs_pending", "Jobs whose final report the foreign server does not have yet.")
	reports := s.counterVec("muster_bridge_reports_total", "Final reports that the foreign server accepted, or permanently refused.", "result")
	b.reports[0], b.reports[1] = reports.WithLabelValues("refused"), reports.WithLabelValues("accepted")
	b.retries = s.counterVec("muster_bridge_retries_total", "Failed and retried attempts to submit a job to Muster (submit), to follow it (follow) or to report its end to the foreign server (report).", "step")
	for _, step := range []string{"submit", "follow", "report"} {
		b.retries.WithLabelValues(step)
	}
	return b
}

// Accepted counts a job of the foreign server.
func (b *Bridge) Accepted() { b.accepted.Inc() }

// Pending adds more to the number of jobs whose report is pending. more may be negative.
func (b *Bridge) Pending(more int) { b.pending.Add(float64(more)) }

// Reported counts a final report that the foreign server accepted, or permanently refused.
func (b *Bridge) Reported(accepted bool) { b.reports[boolIndex(accepted)].Inc() }

// Retried counts a failed attempt that is retried; step is submit, follow or report.
func (b *Bridge) Retried(step string) { b.retries.WithLabelValues(step).Inc() }
