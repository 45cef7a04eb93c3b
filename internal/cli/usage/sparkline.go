package usage

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// Sparkline is one thing that is measured, with its series as a line of bars.
type Sparkline struct {
	Name, Now, Peak, Line string
}

// Sparklines draws what an attempt used in width columns each.
func Sparklines(s client.Series, t muster.Task, width int) []Sparkline {
	v := view{Series: s, task: t}
	rows := v.metrics()
	lines := make([]Sparkline, len(rows))
	for i, r := range rows {
		now := r.average
		if n := len(s.Samples); n > 0 && !s.State.Final() {
			now = formatSample(r, &s.Samples[n-1])
		}
		lines[i] = Sparkline{Name: r.name, Now: now, Peak: r.formatPeak(s.Samples), Line: r.spark(s.Samples, width)}
	}
	return lines
}
