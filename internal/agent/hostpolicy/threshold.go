package hostpolicy

import (
	"fmt"
	"math"
	"time"

	"github.com/muster-dev/muster"
)

const (
	// Slack is how many points a value must be below its threshold before the worker takes tasks again. For a threshold below
	// 2*Slack it is half of the threshold.
	Slack = 5

	// DefaultMinFreeDisk is how much of the data dir's disk stays free by default, but at most a twentieth of the disk.
	DefaultMinFreeDisk muster.Size = 1 << 30

	// lowDisk is how much less than that a disk has free before it is low, but at most a tenth of the disk.
	lowDisk muster.Size = 2 << 30

	blindTimeout   = 5 * time.Minute // without a reading, then a threshold opens
	reasonInterval = time.Minute     // between updates of the reason of a closed threshold
)

// threshold closes when a reading exceeds high, and opens when readings have been below low for the cool-down. Readings are the part of
// the machine in use, in percent, or minus the free bytes of a disk.
type threshold struct {
	name   string // of what is measured, such as "cpu"
	bound  string // what it exceeds, such as "--max-cpu-percent 80"
	high   float64
	low    float64
	format format

	coolDown   time.Duration
	closed     bool
	belowSince time.Time // the first of consecutive readings below low; zero if the last was not
	readAt     time.Time // of the last reading
	reason     string
	reasonAt   time.Time
}

func newThreshold(name, bound string, high float64, coolDown time.Duration) *threshold {
	return &threshold{name: name, bound: bound, high: high, low: high - min(Slack, high/2), coolDown: coolDown, format: percentage}
}

// newFreeThreshold returns a threshold that closes when less than free is free, and opens at a quarter more.
func newFreeThreshold(name, bound string, free muster.Size, coolDown time.Duration) *threshold {
	return &threshold{name: name, bound: bound, high: -float64(free), low: -1.25 * float64(free), coolDown: coolDown, format: freeSpace}
}

// format is how a threshold describes its readings.
type format struct {
	reading, bound func(float64) string
	over, open     string // the comparison with the bound when closed; when it opens
}

var (
	percentage = format{func(p float64) string { return formatPercent(math.Ceil(p*10) / 10) }, formatPercent, "over", "below"}
	freeSpace  = format{func(f float64) string { return formatFree(f) + " free" }, formatFree, "under", "above"}
)

func formatFree(f float64) string { return muster.Size(math.Round(-f)).String() }

// update processes a reading and returns why no new tasks are taken, "" if the threshold is open. NaN means no reading.
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
