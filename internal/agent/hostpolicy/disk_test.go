package hostpolicy

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

// A worker takes no tasks while too little disk space is free, and takes them again once a quarter more has been free for the cool-down.
func TestFreeDisk(t *testing.T) {
	t.Parallel()
	const mib = muster.Size(1) << 20
	for _, c := range []struct {
		name    string
		options Options
		disk    muster.Size
		least   muster.Size
	}{
		{"a large disk", Options{}, 100 << 30, 1 << 30},
		{"a small disk", Options{}, 640 * mib, 32 * mib},
		{"the operator says", Options{MinFreeDisk: new(50 * mib)}, 100 << 30, 50 * mib},
		{"the operator wants no limit", Options{MinFreeDisk: new(muster.Size(0))}, 100 << 30, 0},
		{"the size of the disk is unknown", Options{}, 0, 1 << 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.options.minFreeDisk(c.disk); got != c.least {
				t.Errorf("it keeps %s free, want %s", got, c.least)
			}
			if missing := c.options.MissingDisk(muster.DiskLoad{Total: c.disk, Free: c.least}); missing != 0 {
				t.Errorf("%s more must be free", missing)
			}
			if missing := c.options.MissingDisk(muster.DiskLoad{Total: c.disk, Free: c.least - 1}); c.least > 0 && missing != c.least/4+1 {
				t.Errorf("%s more must be free, want %s", missing, c.least/4+1)
			}
			if g := c.options.thresholds(c.disk).disk; (g == nil) != (c.least == 0) {
				t.Errorf("its gate is %+v", g)
			}
		})
	}
	g := (&Options{}).thresholds(100 << 30).disk
	now := epoch
	for i, s := range []struct {
		after  time.Duration
		free   float64
		closed bool
		want   string
	}{
		{0, 1 << 30, false, ""},
		{2 * time.Second, 12 * float64(mib), true, "disk at 12MiB free is under --min-free-disk 1GiB; takes tasks again above 1.3GiB for 30s"},
		{time.Minute, 1.1 * (1 << 30), true, "free was under --min-free-disk 1GiB"},
		{2 * time.Second, 1.3 * (1 << 30), true, ""},
		{2 * time.Second, math.NaN(), true, ""},
		{28 * time.Second, 2 << 30, false, ""},
	} {
		now = now.Add(s.after)
		reading := -s.free
		if why := g.update(now, reading); (why != "") != s.closed || !strings.Contains(why, s.want) {
			t.Fatalf("look %d: %q, want closed %t and %q", i, why, s.closed, s.want)
		}
	}
}

// A disk is low when little space is left above the limit, but not while the worker takes no tasks because of the limit.
func TestLowDisk(t *testing.T) {
	t.Parallel()
	const gib = muster.Size(1) << 30
	for _, c := range []struct {
		name        string
		least       *muster.Size
		free, total muster.Size
		low         bool
	}{
		{"enough by default", nil, 3 * gib, 1000 * gib, false},
		{"little by default", nil, 3*gib - 1, 1000 * gib, true},
		{"a tenth of a small disk", nil, 3 * gib / 2, 10 * gib, false},
		{"less than a tenth of a small disk", nil, 3*gib/2 - 1, 10 * gib, true},
		{"enough above a high limit", new(10 * gib), 30 * gib, 1000 * gib, false},
		{"little above a high limit", new(10 * gib), 30*gib - 1, 1000 * gib, true},
		{"a limit of most of the disk", new(800 * gib), 900 * gib, 1000 * gib, false},
		{"little above a limit of most of the disk", new(800 * gib), 900*gib - 1, 1000 * gib, true},
		{"enough without a limit", new(muster.Size(0)), 2 * gib, 1000 * gib, false},
		{"little without a limit", new(muster.Size(0)), 2*gib - 1, 1000 * gib, true},
	} {
		o := Options{MinFreeDisk: c.least}
		if got := o.isLow(&muster.DiskLoad{Free: c.free, Total: c.total}); got != c.low {
			t.Errorf("%s: %s of %s free: low %t", c.name, c.free, c.total, got)
		}
	}
	g := New(Config{Options: Options{MinFreeDisk: new(muster.Size(1) << 60)}, Data: t.TempDir(), Worker: &fakeWorker{}, Log: quiet})
	g.CheckThresholds(t.Context())
	if d := g.Disk(); d == nil || d.Free <= 0 || d.Total < d.Free || d.Low {
		t.Errorf("the disk of a worker that takes nothing because of it is %+v", d)
	}
}

// The first look is made before the worker takes tasks.
func TestBeginChecksTheDisk(t *testing.T) {
	t.Parallel()
	c := &fakeWorker{}
	g := New(Config{Options: Options{MinFreeDisk: new(muster.Size(1) << 60)}, Data: t.TempDir(), Worker: c, Log: quiet})
	g.CheckThresholds(t.Context())
	expect(t, c, "constrain disk: disk at ")
}
