package hostpolicy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

const (
	dayMinutes  = 24 * 60
	weekMinutes = 7 * dayMinutes
)

// Hours are the times of a week in which a worker takes tasks.
type Hours struct {
	text string
	open [weekMinutes]bool // from Sunday 00:00, local time
}

var days = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// ParseHours parses a list such as "mon-fri 18:00-08:00, sat, sun". Each item has days, ranges of days, and ranges of time, which
// apply to each of the days: without days to every day, without a time to the whole day. A range that ends before it begins
// ends on the next day.
func ParseHours(s string) (*Hours, error) {
	h := &Hours{text: strings.Join(strings.Fields(s), " ")}
	for item := range strings.SplitSeq(s, ",") {
		if err := h.add(strings.Fields(strings.ToLower(item))); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// String returns the list as it was written.
func (h *Hours) String() string { return h.text }

// span is a range of minutes. last may be smaller than first.
type span struct{ first, last int }

func (h *Hours) add(words []string) error {
	var on [7]bool
	var times []span
	anyDay := false
	for _, w := range words {
		if w[0] >= '0' && w[0] <= '9' {
			t, err := parseTimes(w)
			if err != nil {
				return err
			}
			times = append(times, t)
			continue
		}
		first, last, err := parseDays(w)
		if err != nil {
			return err
		}
		for d := first; ; d = (d + 1) % 7 {
			on[d], anyDay = true, true
			if d == last {
				break
			}
		}
	}
	if len(words) == 0 {
		return muster.Errorf(muster.Invalid, `empty item in the hours: write them such as "mon-fri 18:00-08:00, sat, sun"`)
	}
	if len(times) == 0 {
		times = []span{{0, dayMinutes}}
	}
	for d := range on {
		for _, t := range times {
			if on[d] || !anyDay {
				h.setOpen(d*dayMinutes+t.first, d*dayMinutes+t.last)
			}
		}
	}
	return nil
}

func (h *Hours) setOpen(first, last int) {
	if last < first {
		last += dayMinutes
	}
	for m := first; m < last; m++ {
		h.open[m%weekMinutes] = true
	}
}

func parseDays(w string) (first, last int, err error) {
	from, to, ranged := strings.Cut(w, "-")
	if first, err = parseDay(from); err != nil || !ranged {
		return first, first, err
	}
	last, err = parseDay(to)
	return first, last, err
}

// parseDay accepts "mon" and all longer forms up to "monday".
func parseDay(w string) (int, error) {
	for i, d := range days {
		if strings.HasPrefix(w, d) && strings.HasPrefix(strings.ToLower(time.Weekday(i).String()), w) {
			return i, nil
		}
	}
	hint := "write mon, tue, wed, thu, fri, sat or sun"
	if near := muster.Nearest(w, days); near != "" {
		hint = "did you mean " + near + "?"
	}
	return 0, muster.Errorf(muster.Invalid, "%q in the hours is neither a day nor a time: %s", w, hint)
}

func parseTimes(w string) (span, error) {
	from, to, ranged := strings.Cut(w, "-")
	first, ok1 := parseTime(from)
	last, ok2 := parseTime(to)
	switch {
	case !ranged || !ok1 || !ok2 || first == dayMinutes:
		return span{}, muster.Errorf(muster.Invalid, "%q in the hours is not a range of time: write one such as 18:00-08:00", w)
	case first == last:
		return span{}, muster.Errorf(muster.Invalid, "%q in the hours begins when it ends: omit it for the whole day", w)
	}
	return span{first, last}, nil
}

// parseTime accepts "8:00" up to "24:00".
func parseTime(w string) (minute int, ok bool) {
	hour, minutes, colon := strings.Cut(w, ":")
	h, err1 := strconv.ParseUint(hour, 10, 8)
	m, err2 := strconv.ParseUint(minutes, 10, 8)
	minute = int(h)*60 + int(m)
	return minute, colon && len(minutes) == 2 && err1 == nil && err2 == nil && m < 60 && minute <= dayMinutes
}

// Open reports whether t, in its location, is within the hours.
func (h *Hours) Open(t time.Time) bool {
	return h.open[int(t.Weekday())*dayMinutes+t.Hour()*60+t.Minute()]
}

// NextOpening returns when the hours begin next after t, which is outside them.
func (h *Hours) NextOpening(t time.Time) time.Time {
	const maxMinutes = weekMinutes + 2*dayMinutes // clocks are set forward by less than a day
	t = t.Truncate(time.Minute)
	for range maxMinutes {
		t = t.Add(time.Minute)
		if h.Open(t) {
			break
		}
	}
	return t
}

// closedReason returns why no new tasks are taken at now, "" within the hours.
func (h *Hours) closedReason(now time.Time) (why string) {
	if h.Open(now) {
		return ""
	}
	at := h.NextOpening(now)
	day := at.Format("Mon 15:04 MST")
	if at.YearDay() == now.YearDay() && at.Year() == now.Year() {
		day = at.Format("15:04 MST")
	}
	return fmt.Sprintf("outside its hours %s; opens at %s", h.text, day)
}
