package term

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// FormatDuration formats a duration in at most two units: "40ms", "2.5s", "12s", "3m05s", "2h10m", "5d4h".
func FormatDuration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// FormatAge formats an age in one unit: "now", "12s", "3m", "2h", "5d".
func FormatAge(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	}
}

// FormatPercent formats a fraction of 0 to 1 in whole percent, rounded down.
func FormatPercent(fraction float64) string {
	if math.IsNaN(fraction) {
		fraction = 0
	}
	return fmt.Sprintf("%d%%", int(min(max(fraction, 0), 1)*100+1e-9))
}

// Plural formats a number of things: "1 task", "2 tasks".
func Plural[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Wrap joins words to lines of at most width columns; a width below 1 means no limit.
func Wrap(words []string, width int) []string {
	var lines []string
	for _, w := range words {
		if last := len(lines) - 1; last >= 0 && (width < 1 || Width(lines[last])+1+Width(w) <= width) {
			lines[last] += " " + w
		} else {
			lines = append(lines, w)
		}
	}
	return lines
}

// ProgressBar draws a fraction of 0 to 1 in width columns.
func ProgressBar(width int, fraction float64) string {
	if math.IsNaN(fraction) {
		fraction = 0
	}
	filled := int(min(max(fraction, 0), 1)*float64(width) + 1e-9)
	return strings.Repeat("█", filled) + strings.Repeat("░", width-filled)
}

// Sparkline draws values from 0 to top, one per column. NaN is a space.
func Sparkline(values []float64, top float64) string {
	const bars = "▁▂▃▄▅▆▇█"
	levels := []rune(bars)
	drawn := make([]rune, len(values))
	for i, v := range values {
		switch fraction := v / top; {
		case math.IsNaN(v):
			drawn[i] = ' '
		case !(fraction > 0): // top may be 0
			drawn[i] = levels[0]
		default:
			drawn[i] = levels[min(len(levels)-1, int(fraction*float64(len(levels))))]
		}
	}
	return string(drawn)
}
