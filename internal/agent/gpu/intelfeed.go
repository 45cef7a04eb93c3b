package gpu

import (
	"strconv"
	"strings"
	"time"
)

// dump is the stream of readings of Intel: a heading, then a line for each
// device and period. Version 2 has other options than version 1.
func (s *Stream) dump() *feed {
	every := min(20*time.Second, max(s.every.Round(time.Second), time.Second)) // what the tool takes
	args := func(metrics, interval string) func() []string {
		return func() []string {
			return []string{"dump", "-d", "-1", metrics, "0,1,3,18", interval, strconv.Itoa(int(every / time.Second))}
		}
	}
	read := func() reader { return &dump{s: s, every: every} }
	return &feed{tool: "xpu-smi", every: every, again: s.again, log: s.log, forms: []form{
		{args: args("-m", "-i"), reader: read},
		{args: args("--metrics", "--interval"), reader: read},
	}}
}

// dump reads the lines, by the names in their heading.
type dump struct {
	s       *Stream
	every   time.Duration
	columns []string
}

func (r *dump) line(now time.Time, s string) bool {
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
			r.Utilization = share(value)
		case strings.HasPrefix(c, "gpu power"):
			r.Power = amount(value)
		case strings.HasPrefix(c, "gpu core temperature"):
			r.Temperature = degrees(value)
		case strings.HasPrefix(c, "gpu memory used"):
			r.Memory = mebibytes(value)
		}
	}
	return index, r, ok
}
