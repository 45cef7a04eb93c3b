package cron_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cron"
)

var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func parse(t interface{ Fatal(args ...any) }, expression, zone string) cron.Expression {
	e, err := cron.Parse(expression, zone, now)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Runs are at the times that a user of cron expects, also when the clock is changed.
func TestNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, expression, zone, after string
		want                          string // separated by spaces
	}{
		{"every day in UTC", "30 2 * * *", "", "2026-03-01T02:30:00Z", "2026-03-02T02:30:00Z 2026-03-03T02:30:00Z"},
		{"seconds are not runs", "*/15 * * * *", "", "2026-03-01T02:29:59Z", "2026-03-01T02:30:00Z 2026-03-01T02:45:00Z"},
		{"working days", "0 9 * * MON-FRI", "Europe/Berlin", "2026-07-03T10:00:00Z", "2026-07-06T09:00:00+02:00"},
		{"day of the month or of the week", "0 0 13 * FRI", "", "2026-11-01T00:00:00Z", "2026-11-06T00:00:00Z 2026-11-13T00:00:00Z 2026-11-20T00:00:00Z"},
		{"leap day", "0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},
		{"midnight", "@daily", "America/New_York", "2026-05-01T12:00:00Z", "2026-05-02T00:00:00-04:00"},

		{"skipped hour: at its end", "30 2 * * *", "Europe/Berlin", "2026-03-28T02:30:00Z", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"skipped hour: two times are one run", "0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00 2026-03-30T02:00:00+02:00"},
		{"skipped hour: its end has its own run, too", "0,30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00"},
		{"skipped hour: real time", "*/30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", "2026-03-29T01:30:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00"},
		{"skipped midnight", "0 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z", "2026-04-24T01:00:00+03:00 2026-04-25T00:00:00+03:00"},
		{"half an hour is skipped", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},

		{"repeated hour: the first", "30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"repeated hour: from within it", "30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", "2026-10-26T02:30:00+01:00"},
		{"repeated hour: real time", "0,30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T02:30:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T02:30:00+01:00 2026-10-25T03:00:00+01:00"},
		{"repeated hour: each second hour of the clock", "0 */2 * * *", "Europe/Berlin", "2026-10-24T22:30:00Z", "2026-10-25T02:00:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T04:00:00+01:00"},
		{"a day is skipped", "0 12 * * *", "Pacific/Apia", "2011-12-30T00:00:00Z", "2011-12-31T00:00:00+14:00 2011-12-31T12:00:00+14:00"},
	} {
		e := parse(t, c.expression, c.zone)
		got, last := []string{}, at(t, c.after)
		for range len(strings.Fields(c.want)) {
			last = e.Next(last)
			got = append(got, last.Format(time.RFC3339))
		}
		if want := strings.Fields(c.want); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}

func TestParseRejects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ expression, zone, want string }{
		{"", "", "has 0 fields"},
		{"* * * *", "", "has 4 fields"},
		{"0 30 2 * * *", "", "has 6 fields"},
		{"60 * * * *", "", "invalid cron expression"},
		{"*/0 * * * *", "", "invalid cron expression"},
		{"x * * * *", "", "invalid cron expression"},
		{"@every 1h", "", "has 2 fields"},
		{"@reboot", "", "unknown cron expression"},
		{"TZ=Asia/Tokyo 0 0 * * *", "", "has 6 fields"},
		{"TZ=UTC 0 0 * *", "", "names a time zone"},
		{"TZ=0", "", "has 1 fields"},
		{"0 0 30 2 *", "", "no time in the next five years"},
		{"0 0 * * *", "Berlin", "unknown time zone"},
		{"0 0 * * *", "Local", "invalid time zone"},
		{"0 0 * * *", "../../etc/passwd", "unknown time zone"},
		{strings.Repeat("1,", 200) + "1 * * * *", "", "the limit is 200"},
	} {
		if _, err := cron.Parse(c.expression, c.zone, now); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in %q: %v, want %q", c.expression, c.zone, err, c.want)
		}
	}
}

// FuzzParse checks that no expression makes the parser panic or hang, and that runs are whole minutes and only move forward.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"30 2 * * *", "@daily", "TZ=0", "CRON_TZ= * * * *", "*/5 1-3,7 ? JAN-MAR sun", "0 0 29 2 *", "@every 1s", "0-59/0 * * * *", "* * * * 8"} {
		f.Add(s, "Europe/Berlin")
		f.Add(s, "Africa/Casablanca")
	}
	f.Fuzz(func(t *testing.T, expression, zone string) {
		e, err := cron.Parse(expression, zone, now)
		if err != nil {
			return
		}
		for last, n := now, 0; n < 5; n++ {
			next := e.Next(last)
			if next.IsZero() {
				return
			}
			if !next.After(last) || next.Second() != 0 {
				t.Fatalf("%q in %q: after %s comes %s", expression, zone, last, next)
			}
			last = next
		}
	})
}

func plans(rt *rapid.T) cron.Plan {
	expression := rapid.SampledFrom([]string{"* * * * *", "*/7 * * * *", "30 2 * * *", "0,30 1-3 * * *", "0 */2 * * *", "@weekly"}).Draw(rt, "expression")
	zone := rapid.SampledFrom([]string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"}).Draw(rt, "zone")
	p := cron.Plan{Expression: parse(rt, expression, zone), Missed: rapid.SampledFrom([]cron.Missed{cron.MissedSkip, cron.MissedRunOnce, cron.MissedRunAll}).Draw(rt, "missed"), Overlap: cron.OverlapAllow}
	if err := p.Validate(); err != nil {
		rt.Fatal(err)
	}
	return p
}

// However a schedule is polled, each run is decided once, in order: started or skipped; and what may be missed follows the policy.
func TestEachRunIsDecidedOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		p := plans(rt)
		clock := time.Date(2026, time.Month(rapid.IntRange(1, 12).Draw(rt, "month")), rapid.IntRange(1, 28).Draw(rt, "day"), 0, 0, 0, 0, time.UTC)
		begin, next := clock, p.Next(clock)
		var started []time.Time
		skipped := 0
		for range rapid.IntRange(1, 6).Draw(rt, "polls") {
			clock = clock.Add(time.Duration(rapid.IntRange(1, 40_000).Draw(rt, "seconds")) * time.Second)
			for steps := 0; ; steps++ {
				s := p.Step(next, clock)
				if s == (cron.Step{}) {
					break
				}
				if steps > cron.MaxCatchUp+1 || !s.Next.After(next) && s.Skip == 0 || s.Next.Before(next) || (s.Skip > 0) == !s.Start.IsZero() {
					rt.Fatalf("step %d at %s from %s: %+v", steps, clock, next, s)
				}
				if !s.Start.IsZero() {
					if s.Start.After(clock) || p.Missed == cron.MissedSkip && clock.Sub(s.Start) > cron.Grace {
						rt.Fatalf("at %s the run of %s is started", clock, s.Start)
					}
					started = append(started, s.Start)
				}
				skipped += s.Skip
				next = s.Next
			}
			if !next.After(clock) {
				rt.Fatalf("at %s the next run is %s", clock, next)
			}
		}
		total, runs := 0, map[int64]bool{}
		for r := p.Next(begin); !r.After(clock); r = p.Next(r) {
			total++
			runs[r.Unix()] = true
		}
		if len(started)+skipped != total {
			rt.Fatalf("%d started and %d skipped of %d runs", len(started), skipped, total)
		}
		for i, r := range started {
			if !runs[r.Unix()] || i > 0 && !r.After(started[i-1]) {
				rt.Fatalf("started %s after %v", r, started[:i])
			}
		}
	})
}

func TestMissedRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		missed            cron.Missed
		expression, clock string // the first run is at 2026-01-01T01:00Z
		want              cron.Step
	}{
		{cron.MissedSkip, "0 * * * *", "2026-01-01T01:04:59Z", cron.Step{Start: at(t, "2026-01-01T01:00:00Z"), Next: at(t, "2026-01-01T02:00:00Z")}},
		{cron.MissedSkip, "0 * * * *", "2026-01-01T01:05:01Z", cron.Step{Skip: 1, LastSkip: at(t, "2026-01-01T01:00:00Z"), Next: at(t, "2026-01-01T02:00:00Z")}},
		{cron.MissedSkip, "0 * * * *", "2026-01-01T03:01:00Z", cron.Step{Skip: 2, LastSkip: at(t, "2026-01-01T02:00:00Z"), Next: at(t, "2026-01-01T03:00:00Z")}},
		{cron.MissedRunOnce, "0 * * * *", "2026-01-01T03:30:00Z", cron.Step{Skip: 2, LastSkip: at(t, "2026-01-01T02:00:00Z"), Next: at(t, "2026-01-01T03:00:00Z")}},
		{cron.MissedRunOnce, "0 0 * * *", "2026-01-01T23:30:00Z", cron.Step{Start: at(t, "2026-01-01T01:00:00Z"), Next: at(t, "2026-01-02T00:00:00Z")}},
		{cron.MissedRunAll, "0 * * * *", "2026-01-01T03:30:00Z", cron.Step{Start: at(t, "2026-01-01T01:00:00Z"), Next: at(t, "2026-01-01T02:00:00Z")}},
		{cron.MissedRunAll, "* * * * *", "2026-01-01T02:40:00Z", cron.Step{Skip: 1, LastSkip: at(t, "2026-01-01T01:00:00Z"), Next: at(t, "2026-01-01T01:01:00Z")}},
		{cron.MissedRunAll, "* * * * *", "2029-01-01T02:40:00Z", cron.Step{Skip: 901, LastSkip: at(t, "2029-01-01T01:00:00Z"), Next: at(t, "2029-01-01T01:01:00Z")}},
		{cron.MissedSkip, "0 * * * *", "2026-01-01T00:59:59Z", cron.Step{}},
	} {
		p := cron.Plan{Expression: parse(t, c.expression, ""), Missed: c.missed, Overlap: cron.OverlapAllow}
		got := p.Step(at(t, "2026-01-01T01:00:00Z"), at(t, c.clock))
		if got.Skip != c.want.Skip || !got.LastSkip.Equal(c.want.LastSkip) || !got.Start.Equal(c.want.Start) || !got.Next.Equal(c.want.Next) {
			t.Errorf("%s %s at %s: %+v, want %+v", c.missed, c.expression, c.clock, got, c.want)
		}
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		overlap cron.Overlap
		active  int
		want    cron.Action
	}{
		{cron.OverlapAllow, 0, cron.Start}, {cron.OverlapAllow, 99, cron.Start}, {cron.OverlapAllow, 100, cron.Skip},
		{cron.OverlapForbid, 0, cron.Start}, {cron.OverlapForbid, 1, cron.Skip},
		{cron.OverlapReplace, 0, cron.Start}, {cron.OverlapReplace, 1, cron.Replace}, {cron.OverlapReplace, 200, cron.Replace},
	} {
		if got := c.overlap.Decide(c.active); got != c.want {
			t.Errorf("%s with %d: %d, want %d", c.overlap, c.active, got, c.want)
		}
	}
	for _, p := range []cron.Plan{{Missed: "x", Overlap: cron.OverlapAllow}, {Missed: cron.MissedSkip, Overlap: "x"}, {Missed: cron.MissedRunAll, Overlap: cron.OverlapForbid}} {
		if err := p.Validate(); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	if cron.Reset(time.Time{}, now) || cron.Reset(now.Add(24*time.Hour), now) || !cron.Reset(now.Add(24*time.Hour+time.Second), now) {
		t.Error("the clock may be set back by a day, not by more")
	}
}
