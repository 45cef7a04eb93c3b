package cron

import (
	"slices"
	"strings"
	"time"

	robfig "github.com/robfig/cron/v3"

	"github.com/muster-dev/muster"
)

// MaxExpression is the maximum size of an expression, and of the name of a zone, in bytes.
const MaxExpression = 200

// Expression is a parsed cron expression in a time zone. Its zero value has no runs.
type Expression struct {
	fields   robfig.Schedule // in UTC, as if the wall clock was there
	realTime bool            // runs follow the real time
	zone     *time.Location
}

// Parse reads five fields (minute, hour, day of the month, month, day of the week) or @hourly, @daily, @midnight, @weekly, @monthly, @yearly or
// @annually, and the name of a zone of the IANA database; "" means UTC. An expression that has no run within five years is an error.
// Errors are Invalid, and say which of the two is wrong. now is any time of the present.
func Parse(expression, zone string, now time.Time) (Expression, error) {
	fields := strings.Fields(expression)
	at := len(fields) == 1 && strings.HasPrefix(fields[0], "@")
	switch {
	case len(expression) > MaxExpression:
		return Expression{}, muster.Errorf(muster.Invalid, "the cron expression has %d bytes: the limit is %d", len(expression), MaxExpression)
	case at && !slices.Contains([]string{"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"}, fields[0]):
		return Expression{}, muster.Errorf(muster.Invalid, "unknown cron expression %q: use five fields such as \"30 2 * * *\", or @hourly, @daily, @weekly, @monthly or @yearly", expression)
	case !at && len(fields) != 5:
		return Expression{}, muster.Errorf(muster.Invalid, "the cron expression %q has %d fields, not five: minute, hour, day of the month, month and day of the week, such as \"30 2 * * 1-5\"",
			expression, len(fields))
	}
	if strings.Contains(fields[0], "=") {
		return Expression{}, muster.Errorf(muster.Invalid, "the cron expression %q names a time zone: use the time zone of the schedule", expression)
	}
	parsed, err := robfig.ParseStandard(strings.Join(fields, " "))
	if err != nil {
		return Expression{}, muster.Errorf(muster.Invalid, "invalid cron expression %q: %w", expression, err)
	}
	location, err := loadZone(zone)
	if err != nil {
		return Expression{}, err
	}
	e := Expression{fields: parsed, realTime: fields[0] == "@hourly" || !at && strings.HasPrefix(fields[1], "*"), zone: location}
	if e.Next(now).IsZero() {
		return Expression{}, muster.Errorf(muster.Invalid, "the cron expression %q has no time in the next five years", expression)
	}
	return e, nil
}

func loadZone(name string) (*time.Location, error) {
	if len(name) > MaxExpression || name == "Local" {
		return nil, muster.Errorf(muster.Invalid, "invalid time zone %q: use a name of the IANA database such as Europe/Berlin, or UTC", muster.Truncate(name))
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "unknown time zone %q: use a name of the IANA database such as Europe/Berlin, or UTC", muster.Truncate(name))
	}
	return location, nil
}

// Zone returns the zone of the expression.
func (e *Expression) Zone() *time.Location { return e.zone }

// Next returns the first run after a time, in the expression's zone, to the minute; the zero time if there is none within five years.
func (e *Expression) Next(after time.Time) time.Time {
	if e.fields == nil {
		return time.Time{}
	}
	if e.realTime {
		return e.nextReal(after.In(e.zone))
	}
	after = after.In(e.zone)
	for wall := e.fields.Next(wallClock(after)); !wall.IsZero(); wall = e.fields.Next(wall) {
		if at := instant(wall, e.zone); at.After(after) {
			return at
		}
	}
	return time.Time{}
}

// nextReal is Next for runs that follow the real time. It looks at one stretch of time with a constant offset after the other.
func (e *Expression) nextReal(after time.Time) time.Time {
	for {
		wall := e.fields.Next(wallClock(after))
		if wall.IsZero() {
			return time.Time{}
		}
		_, offset := after.Zone()
		at := wall.Add(-time.Duration(offset) * time.Second).In(e.zone)
		_, end := after.ZoneBounds()
		if end.IsZero() || at.Before(end) {
			return at
		}
		if at = end.In(e.zone); e.matches(wallClock(at)) {
			return at
		}
		after = at
	}
}

// matches reports whether a time of the wall clock is one of the expression's.
func (e *Expression) matches(wall time.Time) bool {
	return e.fields.Next(wall.Add(-time.Nanosecond)).Equal(wall)
}

// wallClock returns what the clock shows at a time, as that time in UTC.
func wallClock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// maxShift is more than a change of a zone's offset.
const maxShift = 26 * time.Hour

// instant returns the first time at which the clock of a zone shows wall; if the clock skips it, the end of the gap.
func instant(wall time.Time, zone *time.Location) time.Time {
	var at time.Time
	for _, probe := range []time.Time{wall.Add(-maxShift), wall.Add(maxShift)} {
		_, offset := probe.In(zone).Zone()
		if at = wall.Add(-time.Duration(offset) * time.Second).In(zone); wallClock(at).Equal(wall) {
			return at
		}
	}
	// With the offset after the gap, it is before it.
	_, end := at.ZoneBounds()
	return end.In(zone)
}
