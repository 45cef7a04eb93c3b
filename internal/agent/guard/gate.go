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

	// DefaultMinFreeDisk is how much of the data dir's disk stays free where the operator does
	// not say, or a twentieth of a disk that is smaller than twenty times that.
	DefaultMinFreeDisk muster.Size = 1 << 30

	// lowDisk is the least that a disk has free above that before it is low, or a tenth of a disk that is smaller than ten times that.
	lowDisk muster.Size = 2 << 30

	blindFor = 5 * time.Minute // without a reading, then a gate opens
	sayAgain = time.Minute     // between two words about a gate that stays closed
)

// gate is closed while a reading is over most, and until it has been under least for the
// cool-down. Readings are shares of the machine in use, in percent, or of what is to stay
// free: minus the free bytes.
type gate struct {
	name  string // of what is read, such as "cpu"
	bound string // what it is over, such as "--max-cpu-percent 80"
	most  float64
	least float64
	words words

	coolDown time.Duration
	closed   bool
	calm     time.Time // the first look of those under least without a break; zero if the last was none
	read     time.Time // the last look that saw anything
	why      string
	said     time.Time // when why was made
}

func newGate(name, bound string, most float64, coolDown time.Duration) *gate {
	return &gate{name: name, bound: bound, most: most, least: most - min(Slack, most/2), coolDown: coolDown, words: percentage}
}

// newFloor makes a gate that is closed while less than so much is free, and opens at a
// quarter more.
func newFloor(name, bound string, free muster.Size, coolDown time.Duration) *gate {
	return &gate{name: name, bound: bound, most: -float64(free), least: -1.25 * float64(free), coolDown: coolDown, words: freeSpace}
}

// words is how a gate tells of its readings.
type words struct {
	reading, bound func(float64) string
	over, open     string // than the bound; when it opens
}

var (
	percentage = words{func(p float64) string { return show(math.Ceil(p*10) / 10) }, show, "over", "below"}
	freeSpace  = words{func(f float64) string { return size(f) + " free" }, size, "under", "above"}
)

func size(f float64) string { return muster.Size(math.Round(-f)).String() }

// see takes a reading and returns why nothing new is taken, "" if it is. NaN is no reading.
func (g *gate) see(now time.Time, reading float64) (why string) {
	switch {
	case math.IsNaN(reading):
		if g.closed && now.Sub(g.read) >= blindFor {
			g.open()
		}
		return g.why
	case reading > g.most:
		g.closed, g.calm = true, time.Time{}
	case reading >= g.least:
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
		g.why, g.said = g.tell(reading), now
	}
	return g.why
}

func (g *gate) open() { g.closed, g.calm, g.why = false, time.Time{}, "" }

func (g *gate) tell(reading float64) string {
	where := "is "
	if reading <= g.most {
		where = "was "
	}
	again := fmt.Sprintf("takes tasks again %s %s", g.words.open, g.words.bound(g.least))
	if g.coolDown > 0 {
		again += " for " + muster.Duration(g.coolDown).String()
	}
	return fmt.Sprintf("%s at %s %s %s; %s", g.name, g.words.reading(reading), where+g.words.over, g.bound, again)
}

func show(percent float64) string { return fmt.Sprintf("%.4g%%", percent) }
