package gpu

import (
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// dump is the stream of readings of Intel: a heading, then a line for each
// device and period. Version 2 has other options than version 1.
func (s *Stream) dump() *tool.Feed {
	every := min(20*time.Second, max(s.every.Round(time.Second), time.Second)) // what the tool takes
	args := func(metrics, interval string) func() []string {
		return func() []string {
			return []string{"dump", "-d", "-1", metrics, "0,1,3,18", interval, strconv.Itoa(int(every / time.Second))}
		}
	}
	read := func() tool.Reader { return &dump{s: s, every: every} }
	return &tool.Feed{Tool: "xpu-smi", Every: every, Again: s.again, Log: s.log, Forms: []tool.Form{
		{Args: args("-m", "-i"), Reader: read},
		{Args: args("--metrics", "--interval"), Reader: read},
	}}
}

// dump reads the lines, by the names in their heading.
type dump struct {
	s       *Stream
	every   time.Duration
	columns []string
}

func (r *dump) Line(now time.Time, s string) bool {
	if strings.HasPrefix(strings.TrimSpace(s), "Timestamp") {
		r.columns = strings.Split(strings.ToLower(s), ",")
		return false
	}
	index, reading, ok := parseDump(s, r.columns)
	if !ok {
		return false
	}
	r.s.put(now, untold, r.every, func(d *Device) bool { return d.Vendor == "intel" && d.Index == index }, reading)
	return true
}

// parseDump reads a line such as
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
			r.Utilization = tool.Share(value)
		case strings.HasPrefix(c, "gpu power"):
			r.Power = tool.Amount(value)
		case strings.HasPrefix(c, "gpu core temperature"):
			r.Temperature = tool.Degrees(value)
		case strings.HasPrefix(c, "gpu memory used"):
			r.Memory = tool.Mebibytes(value)
		}
	}
	return index, r, ok
}
