package gpu

import (
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// intelDump is the stream of readings of Intel: a header, then a line per device and interval. Versions 1 and 2 differ in options.
func (s *Stream) intelDump() *tool.Stream {
	interval := min(20*time.Second, max(s.interval.Round(time.Second), time.Second)) // the range of the tool
	args := func(metricsFlag, intervalFlag string) func() []string {
		return func() []string {
			return []string{"dump", "-d", "-1", metricsFlag, "0,1,3,18", intervalFlag, strconv.Itoa(int(interval / time.Second))}
		}
	}
	read := func() tool.Reader { return &dumpReader{s: s, interval: interval} }
	return &tool.Stream{Tool: "xpu-smi", Interval: interval, MinBackoff: s.minBackoff, Log: s.log, Variants: []tool.Variant{
		{Args: args("-m", "-i"), Reader: read},
		{Args: args("--metrics", "--interval"), Reader: read},
	}}
}

// dumpReader parses the lines by the names in their header.
type dumpReader struct {
	s        *Stream
	interval time.Duration
	columns  []string
}

func (r *dumpReader) Line(now time.Time, s string) bool {
	if strings.HasPrefix(strings.TrimSpace(s), "Timestamp") {
		r.columns = strings.Split(strings.ToLower(s), ",")
		return false
	}
	index, reading, ok := parseDump(s, r.columns)
	if !ok {
		return false
	}
	r.s.setReading(now, unknownLatency, r.interval, func(d *Device) bool { return d.Vendor == "intel" && d.Index == index }, reading)
	return true
}

// parseDump parses a line such as
//
//	06:14:46.000,    0, 99.40, 118.61, 47.00, 10122.53
func parseDump(s string, columns []string) (index int, r Reading, ok bool) {
	values := strings.Split(s, ",")
	if len(values) < 2 || len(values) != len(columns) {
		return 0, r, false
	}
	for i, c := range columns {
		value := strings.TrimSpace(values[i])
		switch c = strings.TrimSpace(c); {
		case strings.HasPrefix(c, "device"):
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return 0, r, false
			}
			index, ok = n, true
		case strings.HasPrefix(c, "gpu utilization"):
			r.Utilization = tool.Fraction(value)
		case strings.HasPrefix(c, "gpu power"):
			r.Power = tool.NonNegative(value)
		case strings.HasPrefix(c, "gpu core temperature"):
			r.Temperature = tool.Temperature(value)
		case strings.HasPrefix(c, "gpu memory used"):
			r.Memory = tool.Mebibytes(value)
		}
	}
	return index, r, ok
}
