package app

import (
	"testing"
	"time"

	"github.com/muster-dev/muster"
)

func TestLocalTimes(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	before := time.Local
	time.Local = zone
	t.Cleanup(func() { time.Local = before })
	for text, want := range map[string]string{
		"": "",
		"tried again at 2026-10-25T00:30:00.000Z":         "tried again at 2026-10-25 02:30:00 CEST",
		"tried again at 2026-10-25T01:30:00.000Z":         "tried again at 2026-10-25 02:30:00 CET", // an hour later: the clock was set back
		"(2026-07-01T22:00:00Z), 2026-01-01T00:00:00.5Z.": "(2026-07-02 00:00:00 CEST), 2026-01-01 01:00:00 CET.",
		"2026-13-01T00:00:00Z and 12026-01-01T00:00:00Z":  "2026-13-01T00:00:00Z and 12026-01-01T00:00:00Z",
	} {
		if got := LocalTimes(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := FormatTime(0); got != "" {
		t.Errorf("an unknown time is %q", got)
	}
	if got := FormatFuture(muster.NewTime(time.Date(2020, 7, 1, 22, 0, 0, 0, time.UTC))); got != "2020-07-02 00:00:00 CEST" {
		t.Errorf("a past deadline is %q", got)
	}
}
