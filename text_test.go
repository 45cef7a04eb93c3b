package muster

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTimeAsText(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		at := Time(rapid.Int64Range(-62135596800000, 253402300799999).Draw(rt, "at")) // the years 1 to 9999
		if got, want := at.String(), time.UnixMilli(int64(at)).UTC().Format("2006-01-02T15:04:05.000Z"); got != want && at != 0 {
			rt.Fatalf("%d is %q, want %q", at, got, want)
		}
		var back Time
		if err := back.UnmarshalText([]byte(at.String())); err != nil || back != at {
			rt.Fatalf("%s became %d: %v", at, back, err)
		}
	})
}

func TestAttemptIDAsText(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		id := AttemptID{
			Task: TaskID{Job: JobID(rapid.Int64Range(1, 1<<62).Draw(rt, "job")), Num: rapid.IntRange(0, MaxTasks).Draw(rt, "num")},
			N:    rapid.IntRange(1, 1<<31-1).Draw(rt, "n"),
		}
		if back, err := ParseAttemptID(id.String()); err != nil || back != id {
			rt.Fatalf("%s became %s: %v", id, back, err)
		}
	})
	for _, s := range []string{"", "1", "1.2", "1.2#", "1.2#0", "1.2#+3", "1.2#03", "01.2#3", "1.-2#3", "1.02#3", "1.2#3 ", " 1.2#3", "1.2#3#4", "1.2.3#4", "0.2#3", "1_0.2#3", "1.2#9999999999", "99999999999999999999.2#3"} {
		if id, err := ParseAttemptID(s); err == nil {
			t.Errorf("%q became %s", s, id)
		}
	}
}
