package guard

import (
	"fmt"
	"math"
	"time"

	"github.com/muster-dev/muster"
)

const (
	// Slack is how many points under its threshold a share must be before the
	// worker opens again. For a threshold under twice that it is half of the threshold.
	Slack = 5

	blindFor = 5 * time.Minute // without a reading, then a gate opens
	sayAgain = time.Minute     // between two words about a gate that stays closed
)

// gate is closed while a share of the machine in use is over most, and until it has been
// under least for the cool-down.
type gate struct {
	name  string  // of the share, such as "cpu"
	bound string  // what it is over, such as "--max-cpu-percent 80"
	most  float64 // percent
	least float64

	coolDown time.Duration
	closed   bool
	calm     time.Time // the first look of those under least without a break; zero if the last was none
	read     time.Time // the last look that saw anything
	why      string
	said     time.Time // when why was made
}

func newGate(name, bound string, most float64, coolDown time.Duration) *gate {
	return &gate{name: name, bound: bound, most: most, least: most - min(Slack, most/2), coolDown: coolDown}
}

// see takes a reading and returns why nothing new is taken, "" if it is. NaN is no reading.
func (g *gate) see(now time.Time, percent float64) (why string) {
	switch {
	case math.IsNaN(percent):
		if g.closed && now.Sub(g.read) >= blindFor {
			g.open()
		}
		return g.why
	case percent > g.most:
		g.closed, g.calm = true, time.Time{}
	case percent >= g.least:
		g.calm = time.Time{}
	default:
		if g.calm.IsZero() {
			g.calm = now
		}
		if now.Sub(g.calm) >= g.coolDown {
			g.open()
		}
	}
	g.read = now
	if g.closed && (g.why == "" || now.Sub(g.said) >= sayAgain) {
		g.why, g.said = g.tell(percent), now
	}
	return g.why
}

func (g *gate) open() { g.closed, g.calm, g.why = false, time.Time{}, "" }

func (g *gate) tell(percent float64) string {
	where := "is over"
	if percent <= g.most {
		where = "was over"
	}
	again := fmt.Sprintf("takes tasks again below %s", show(g.least))
	if g.coolDown > 0 {
		again += " for " + muster.Duration(g.coolDown).String()
	}
	return fmt.Sprintf("%s at %s %s %s; %s", g.name, show(math.Ceil(percent*10)/10), where, g.bound, again)
}

func show(percent float64) string { return fmt.Sprintf("%.4g%%", percent) }
