package usage

import (
	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// Spark is one thing that is measured, with its series as a line of bars.
type Spark struct {
	Name, Now, Peak, Line string
}

// Sparks draws what an attempt used in width columns each.
func Sparks(s client.Series, t muster.Task, width int) []Spark {
	v := view{Series: s, task: t}
	rows := v.rows()
	sparks := make([]Spark, len(rows))
	for i, r := range rows {
		now := r.average
		if n := len(s.Samples); n > 0 && !s.State.Final() {
			now = said(r, &s.Samples[n-1])
		}
		sparks[i] = Spark{Name: r.name, Now: now, Peak: r.peakOf(s.Samples), Line: r.spark(s.Samples, width)}
	}
	return sparks
}
