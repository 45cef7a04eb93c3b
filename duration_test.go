package muster

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDurationSurvivesJSON(t *testing.T) {
	const century = int64(100 * 365 * 24 * time.Hour)
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Range(0, century).Draw(t, "d"))
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var again Duration
		if err := json.Unmarshal(b, &again); err != nil || again != d {
			t.Fatalf("%d is encoded as %s and decoded as %d, %v", d, b, again, err)
		}
	})
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"90": 90 * time.Second, "1.5": 1500 * time.Millisecond, "0.29": 290 * time.Millisecond, "1m": time.Minute,
		"1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "1e3": 1000 * time.Second, "10ms": 10 * time.Millisecond, "0": 0,
	} {
		if d, err := ParseDuration(in); err != nil || d.Std() != want {
			t.Errorf("ParseDuration(%q) = %s, %v, want %s", in, d, err, want)
		}
	}
	for _, in := range []string{"", "-5", "-1s", "NaN", "soon", "1m30", "d", "99999999999", "40000d", "Inf", "1 h"} {
		if d, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %s", in, d)
		}
	}
}
