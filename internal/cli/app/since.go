package app

import (
	"cmp"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
)

// SinceVar returns a flag with a time in the past: the time since then (10m, 3d), a time of today (15:04), a date
// (2026-11-27, at 00:00), both, or RFC 3339. Times without a zone are in the user's.
func (o Option) SinceVar(dst *muster.Time) cli.Flag {
	o.Value = cmp.Or(o.Value, "time")
	parse := func(s string) (muster.Time, error) { return parseSince(s, time.Now()) }
	return Var(o, dst, parse, muster.Time.String)
}

func parseSince(s string, now time.Time) (muster.Time, error) {
	if ago, err := muster.ParseDuration(s); err == nil {
		return muster.NewTime(now.Add(-ago.Std())), nil
	}
	t, err := parseLocalTime(s, now)
	if err != nil {
		return 0, err
	}
	if t.After(now) {
		return 0, muster.Errorf(muster.Invalid, "%q is in the future: give a time in the past", s)
	}
	return muster.NewTime(t), nil
}

// parseLocalTime parses a time of the day of now, a date, or both, in the zone of now, or RFC 3339.
func parseLocalTime(s string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.Parse(layout, s); err == nil {
			y, m, d := now.Date()
			return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, now.Location()), nil
		}
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04:05", time.RFC3339} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, muster.Errorf(muster.Invalid, "%q is not a time: use a time ago (10m, 2h, 3d), 15:04, 2026-11-27, or RFC 3339", muster.Truncate(s))
}
