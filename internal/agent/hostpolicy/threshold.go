package hostpolicy

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

	blindTimeout   = 5 * time.Minute // without a reading, then a gate opens
	reasonInterval = time.Minute     // between two words about a gate that stays closed
)

// threshold is closed while a reading is over most, and until it has been under least for the
// cool-down. Readings are shares of the machine in use, in percent, or of what is to stay
// free: minus the free bytes.
type threshold struct {
	name   string // of what is read, such as "cpu"
	bound  string // what it is over, such as "--max-cpu-percent 80"
	high   float64
	low    float64
	format format

	coolDown   time.Duration
	closed     bool
	belowSince time.Time // the first look of those under least without a break; zero if the last was none
	readAt     time.Time // the last look that saw anything
	reason     string
	reasonAt   time.Time // when why was made
}

func newThreshold(name, bound string, high float64, coolDown time.Duration) *threshold {
	return &threshold{name: name, bound: bound, high: high, low: high - min(Slack, high/2), coolDown: coolDown, format: percentage}
}

// newFreeThreshold makes a gate that is closed while less than so much is free, and opens at a
// quarter more.
func newFreeThreshold(name, bound string, free muster.Size, coolDown time.Duration) *threshold {
	return &threshold{name: name, bound: bound, high: -float64(free), low: -1.25 * float64(free), coolDown: coolDown, format: freeSpace}
}

// format is how a gate tells of its readings.
type format struct {
	reading, bound func(float64) string
	over, open     string // than the bound; when it opens
}

var (
	percentage = format{func(p float64) string { return formatPercent(math.Ceil(p*10) / 10) }, formatPercent, "over", "below"}
	freeSpace  = format{func(f float64) string { return formatFree(f) + " free" }, formatFree, "under", "above"}
)

func formatFree(f float64) string { return muster.Size(math.Round(-f)).String() }

// update takes a reading and returns why nothing new is taken, "" if it is. NaN is no reading.
func (t *threshold) update(now time.Time, reading float64) (why string) {
	switch {
	case math.IsNaN(reading):
		if t.closed && now.Sub(t.readAt) >= blindTimeout {
			t.open()
		}
		return t.reason
	case reading > t.high:
		t.closed, t.belowSince = true, time.Time{}
	case reading >= t.low:
		t.belowSince = time.Time{}
	default:
		if t.belowSince.IsZero() {
			t.belowSince = now
		}
		if now.Sub(t.belowSince) >= t.coolDown {
			t.open()
		}
	}
	t.readAt = now
	if t.closed && (t.reason == "" || now.Sub(t.reasonAt) >= reasonInterval) {
		t.reason, t.reasonAt = t.explain(reading), now
	}
	return t.reason
}

func (t *threshold) open() { t.closed, t.belowSince, t.reason = false, time.Time{}, "" }

func (t *threshold) explain(reading float64) string {
	verb := "is "
	if reading <= t.high {
		verb = "was "
	}
	again := fmt.Sprintf("takes tasks again %s %s", t.format.open, t.format.bound(t.low))
	if t.coolDown > 0 {
		again += " for " + muster.Duration(t.coolDown).String()
	}
	return fmt.Sprintf("%s at %s %s %s; %s", t.name, t.format.reading(reading), verb+t.format.over, t.bound, again)
}

func formatPercent(percent float64) string { return fmt.Sprintf("%.4g%%", percent) }
