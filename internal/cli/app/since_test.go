package app

import (
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

func TestParseSince(t *testing.T) {
	zone := time.FixedZone("JST", 9*60*60)
	now := time.Date(2026, 11, 28, 15, 30, 0, 0, zone)
	for s, want := range map[string]string{
		"10m":                       "2026-11-28T06:20:00.000Z",
		"3d":                        "2026-11-25T06:30:00.000Z",
		"1h30m":                     "2026-11-28T05:00:00.000Z",
		"90":                        "2026-11-28T06:28:30.000Z",
		"15:04":                     "2026-11-28T06:04:00.000Z",
		"00:00:01":                  "2026-11-27T15:00:01.000Z",
		"2026-11-27":                "2026-11-26T15:00:00.000Z",
		"2026-11-27 10:00":          "2026-11-27T01:00:00.000Z",
		"2026-11-27 10:00:01":       "2026-11-27T01:00:01.000Z",
		"2026-11-27T10:00:01":       "2026-11-27T01:00:01.000Z",
		"2026-11-27T10:00:00Z":      "2026-11-27T10:00:00.000Z",
		"2026-11-27T10:00:00.5Z":    "2026-11-27T10:00:00.500Z",
		"2026-11-27T10:00:00+02:00": "2026-11-27T08:00:00.000Z",
	} {
		got, err := parseSince(s, now)
		if err != nil || got.String() != want {
			t.Errorf("%q: %s, %v; want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", "-5m", "15:31", "2026-11-29", "2026-11-28T06:31:00Z", "2026-02-30", "24:00", "yesterday", "10 m", "200y"} {
		if got, err := parseSince(s, now); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%q: %s, %v; want an error", s, got, err)
		}
	}
}

// TestParseSinceOnTheDayOfAClockChange checks that a time of the day is that of the wall clock.
func TestParseSinceOnTheDayOfAClockChange(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 10, 25, 12, 0, 0, 0, zone) // the clock was set back by an hour at 03:00
	got, err := parseSince("01:00", now)
	if err != nil || got.String() != "2026-10-24T23:00:00.000Z" {
		t.Errorf("%s, %v", got, err)
	}
}
