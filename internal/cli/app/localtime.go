package app

import (
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// FormatTime formats a time in the user's zone, to the second and with the zone: 2026-11-28 15:04:05 JST. It is "" if t is 0.
func FormatTime(t muster.Time) string {
	if t == 0 {
		return ""
	}
	return t.Std().In(time.Local).Format("2006-01-02 15:04:05 MST")
}

// LocalTimes replaces the times in a text of the server, which are RFC 3339 in UTC, by those of FormatTime.
func LocalTimes(text string) string {
	return serverTime.Get().ReplaceAllStringFunc(text, func(s string) string {
		var t muster.Time
		if t.UnmarshalText([]byte(s)) != nil || t == 0 {
			return s
		}
		return FormatTime(t)
	})
}

var serverTime = lazyregexp.New(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// WorkerName returns the name of a worker, or its id if the name is unknown.
func WorkerName(id muster.WorkerID, name string) string {
	if name == "" {
		return string(id)
	}
	return name
}
