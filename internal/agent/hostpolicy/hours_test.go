package hostpolicy

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func mustHours(tb testing.TB, s string) *Hours {
	tb.Helper()
	h, err := ParseHours(s)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func TestHours(t *testing.T) {
	for _, test := range []struct {
		hours string
		at    string // 2 March 2026 is a Monday
		open  bool
	}{
		{"mon-fri 18:00-08:00, sat, sun", "Mon 2 17:59", false},
		{"mon-fri 18:00-08:00, sat, sun", "Mon 2 18:00", true},
		{"mon-fri 18:00-08:00, sat, sun", "Tue 3 07:59", true},
		{"mon-fri 18:00-08:00, sat, sun", "Tue 3 08:00", false},
		{"mon-fri 18:00-08:00, sat, sun", "Sat 7 12:00", true},
		{"mon-fri 18:00-08:00, sat, sun", "Sun 8 23:59", true},
		{"mon-fri 18:00-08:00, sat, sun", "Mon 9 00:00", false},
		{"sun 22:00-06:00", "Mon 2 05:59", true}, // over the end of the week
		{"sun 22:00-06:00", "Sun 8 05:59", false},
		{"18:00-08:00", "Wed 4 03:00", true},
		{"fri-mon", "Sun 8 12:00", true},
		{"fri-mon", "Tue 3 12:00", false},
		{"Monday WED 9:00-12:00 13:00-24:00", "Wed 4 23:59", true},
		{"Monday WED 9:00-12:00 13:00-24:00", "Wed 4 12:30", false},
		{"Monday WED 9:00-12:00 13:00-24:00", "Thu 5 00:00", false},
		{"mon 00:00-24:00", "Mon 2 00:00", true},
	} {
		at, err := time.Parse("Mon 2 15:04 2006-01", test.at+" 2026-03")
		if err != nil {
			t.Fatal(err)
		}
		if got := mustHours(t, test.hours).Open(at); got != test.open {
			t.Errorf("%q at %s: open %t, want %t", test.hours, test.at, got, test.open)
		}
	}
}

func TestParseHoursErrors(t *testing.T) {
	for s, want := range map[string]string{
		"":                  "empty item in the hours",
		"mon,":              "empty item in the hours",
		"mno 8:00-9:00":     `"mno" in the hours is neither a day nor a time: did you mean mon?`,
		"mon-xyzzy":         "write mon, tue",
		"mondayish":         "neither a day nor a time",
		"mon 8-9":           "write one such as 18:00-08:00",
		"mon 08:00":         "not a range of time",
		"mon 08:00-24:01":   "not a range of time",
		"mon 08:60-09:00":   "not a range of time",
		"mon 24:00-09:00":   "not a range of time",
		"mon 08:00-8:00":    "begins when it ends",
		"mon 8:00-9:00:00":  "not a range of time",
		"mon -8:00-9:00":    "neither a day nor a time",
		"mon 8:0-9:00":      "not a range of time",
		"mon 8:00–9:00":     "not a range of time",
		"tue-fri-sat":       "neither a day nor a time",
		"mon 300:00-301:00": "not a range of time",
	} {
		if _, err := ParseHours(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", s, err, want)
		}
	}
}

// In Berlin clocks changed from 02:00 to 03:00 on 29 March 2026, and from 03:00 to 02:00 on 25 October.
func TestHoursAcrossClockChanges(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones here: ", err)
	}
	utc := func(s string) time.Time {
		at, err := time.Parse("01-02 15:04", s)
		if err != nil {
			t.Fatal(err)
		}
		return at.AddDate(2026, 0, 0).In(berlin)
	}
	for _, test := range []struct {
		hours string
		at    string // UTC
		open  bool
		opens string // UTC
	}{
		{"sun 02:30-04:00", "03-29 00:59", false, "03-29 01:00"}, // 01:59; the next minute is 03:00
		{"sun 02:30-04:00", "03-29 01:00", true, ""},
		{"sun 02:30-04:00", "03-29 02:00", false, "04-05 00:30"},
		{"sun 02:00-02:30", "03-29 00:59", false, "04-05 00:00"}, // hours that do not come
		{"sun 02:00-02:30", "10-25 00:29", true, ""},
		{"sun 02:00-02:30", "10-25 00:30", false, "10-25 01:00"}, // hours that come twice
		{"sun 02:00-02:30", "10-25 01:29", true, ""},
		{"mon-fri 18:00-08:00", "03-27 07:00", false, "03-27 17:00"},
		{"mon-fri 18:00-08:00", "03-30 05:59", false, "03-30 16:00"}, // an hour earlier than on Friday
	} {
		h, at := mustHours(t, test.hours), utc(test.at)
		if got := h.Open(at); got != test.open {
			t.Errorf("%q at %s: open %t, want %t", test.hours, at, got, test.open)
		}
		if test.opens != "" && !h.NextOpening(at).Equal(utc(test.opens)) {
			t.Errorf("%q at %s opens at %s, want %s", test.hours, at, h.NextOpening(at), utc(test.opens))
		}
	}
}

// Opens returns the next minute within the hours, in any time zone.
func TestHoursOpens(t *testing.T) {
	zones := []*time.Location{time.UTC}
	for _, name := range []string{"America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"} {
		if z, err := time.LoadLocation(name); err == nil {
			zones = append(zones, z)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		clock := rapid.Custom(func(t *rapid.T) string {
			return time.Time{}.Add(time.Duration(rapid.IntRange(0, dayMinutes-1).Draw(t, "minute")) * time.Minute).Format("15:04")
		})
		from, to := clock.Draw(t, "from"), clock.Draw(t, "to")
		h, err := ParseHours(rapid.SampledFrom(days).Draw(t, "day") + " " + from + "-" + to)
		if from == to {
			if err == nil {
				t.Fatal("an empty range is accepted")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		zone := zones[rapid.IntRange(0, len(zones)-1).Draw(t, "zone")]
		at := time.Unix(rapid.Int64Range(1735689600, 1893456000).Draw(t, "at"), 0).In(zone) // 2025 to 2030
		if h.Open(at) {
			return
		}
		opens := h.NextOpening(at)
		if !h.Open(opens) {
			// Only hours in a missing hour of the clock do not come within a week.
			if opens.Sub(at) < 7*24*time.Hour {
				t.Fatalf("%s: not open at %s, when it is said to open", h, opens)
			}
			return
		}
		if before := opens.Add(-time.Minute); before.After(at) && h.Open(before) {
			t.Fatalf("%s: open already at %s, not only at %s", h, before, opens)
		}
	})
}

func TestHoursString(t *testing.T) {
	h := mustHours(t, "  mon-fri  18:00-08:00 , sat")
	for at, want := range map[time.Time]string{
		epoch:                      "outside its hours mon-fri 18:00-08:00 , sat; opens at 18:00 UTC",
		epoch.AddDate(0, 0, 6):     "outside its hours mon-fri 18:00-08:00 , sat; opens at Mon 18:00 UTC",
		epoch.Add(6 * time.Hour):   "",
		epoch.Add(102 * time.Hour): "",
	} {
		if got := h.closedReason(at); got != want {
			t.Errorf("at %s: %q, want %q", at, got, want)
		}
	}
}

func FuzzParseHours(f *testing.F) {
	for _, s := range []string{"mon-fri 18:00-08:00, sat, sun", "8:00-9:00", "fri-mon 22:00-24:00 0:00-1:00", "x", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHours(s)
		if err != nil {
			return
		}
		anyOpen := false
		for _, open := range h.open {
			anyOpen = anyOpen || open
		}
		if !anyOpen {
			t.Fatalf("%q is never open", s)
		}
		again, err := ParseHours(h.String())
		if err != nil || again.open != h.open {
			t.Fatalf("%q is not what %q is: %v", h, s, err)
		}
	})
}
