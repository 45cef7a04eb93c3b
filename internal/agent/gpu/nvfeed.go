package gpu

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// loop tells nvidia-smi how often to print.
func loop(every time.Duration) []string {
	if every%time.Second == 0 {
		return []string{"-l", strconv.Itoa(int(every / time.Second))}
	}
	return []string{"-lms", strconv.Itoa(int(every / time.Millisecond))}
}

// figures is the stream of readings of NVIDIA: a line for each device and
// period, such as
//
//	2024/05/10 12:00:00.123, GPU-5c89852c-…, 97, 30521, 61, 287.13, 0
func (s *Stream) figures() *tool.Feed {
	fields := []string{"timestamp", "uuid", "utilization.gpu", "memory.used", "temperature.gpu", "power.draw", "ecc.errors.uncorrected.volatile.total"}
	return &tool.Feed{Tool: "nvidia-smi", Every: s.every, Again: s.again, Log: s.log, Forms: []tool.Form{{
		Args: func() []string {
			return append([]string{"--query-gpu=" + strings.Join(fields, ","), "--format=csv,noheader,nounits"}, loop(s.every)...)
		},
		Reader: func() tool.Reader {
			return &figures{s: s, fields: fields, drop: func(f string) { fields = without(fields, f) }}
		},
	}}}
}

func without(fields []string, field string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return f == field })
}

// figures reads the lines of the stream.
type figures struct {
	s      *Stream
	fields []string
	drop   func(field string) // one that this driver does not know
}

func (r *figures) Line(now time.Time, s string) bool {
	if rest, ok := strings.CutPrefix(s, `Field "`); ok && strings.Contains(rest, "not a valid field") {
		if name, _, _ := strings.Cut(rest, `"`); name != "uuid" && slices.Contains(r.fields, name) {
			r.drop(name)
		}
		return false
	}
	uuid, reading, asked := parseFigures(s, r.fields)
	if uuid == "" {
		return false
	}
	r.s.put(now, latency(asked, now, r.s.every), r.s.every, func(d *Device) bool { return d.UUID == uuid }, reading)
	return true
}

// latency is how long a reading took from when the driver was asked, or
// untold where that is not known: the clock may have been set since.
func latency(asked, now time.Time, every time.Duration) time.Duration {
	if took := now.Sub(asked); !asked.IsZero() && took >= 0 && took <= every+tool.Patience {
		return took
	}
	return untold
}

// parseFigures reads one line of values in the order of fields. It returns no
// UUID for any other text.
func parseFigures(s string, fields []string) (uuid string, r Reading, asked time.Time) {
	at := 0
	for value := range strings.SplitSeq(s, ",") {
		if at == len(fields) {
			return "", Reading{}, asked
		}
		value = strings.TrimSpace(value)
		switch fields[at] {
		case "timestamp":
			if t, err := time.Parse("2006/01/02 15:04:05.000", value); err == nil { // in UTC, as it was started
				asked = t
			}
		case "uuid":
			uuid = value
		case "utilization.gpu":
			r.Utilization = tool.Share(value)
		case "memory.used":
			r.Memory = tool.Mebibytes(value)
			if tool.Unreadable(value) {
				r.Faults = adding(r.Faults, "the driver cannot read its memory")
			}
		case "temperature.gpu":
			r.Temperature = tool.Degrees(value)
			if tool.Unreadable(value) {
				r.Faults = adding(r.Faults, "the driver cannot read its temperature")
			}
		case "power.draw":
			r.Power = tool.Amount(value)
		case "ecc.errors.uncorrected.volatile.total":
			r.ECC = tool.Count(value)
		}
		if why := tool.Ill(value); why != "" {
			r.Faults = adding(r.Faults, why)
		}
		at++
	}
	if at != len(fields) || !strings.HasPrefix(uuid, "GPU-") && !strings.HasPrefix(uuid, "MIG-") {
		return "", Reading{}, asked
	}
	r.UUID = uuid
	return uuid, r, asked
}

// pids is the stream of the processes on devices of NVIDIA. It is the log and
// not --query-compute-apps because that one prints nothing where there are no
// processes, as if it hung, and leaves out those that draw.
func (s *Stream) pids() *tool.Feed {
	return &tool.Feed{Tool: "nvidia-smi", Every: s.every, Again: s.again, Log: s.log, Forms: []tool.Form{{
		Args:   func() []string { return append([]string{"-q", "-d", "PIDS"}, loop(s.every)...) },
		Reader: func() tool.Reader { return &pids{s: s} },
	}}}
}

// pids reads the log that nvidia-smi -q -d PIDS prints: for each device a
// heading with its address and a list.
type pids struct {
	s    *Stream
	all  []pidList // of the log that is being read
	open bool
}

type pidList struct {
	bus   string
	found []smiProcess // nil where they are unknown
}

func (r *pids) Line(now time.Time, s string) (sampled bool) {
	if strings.Contains(s, "NVSMI LOG") {
		return r.Quiet(now)
	}
	if rest, ok := strings.CutPrefix(s, "GPU "); ok {
		if bus := tool.Bus(rest); bus != "" {
			r.all = append(r.all, pidList{bus: bus})
			r.open = true
			return false
		}
	}
	if len(r.all) == 0 {
		return false
	}
	list := &r.all[len(r.all)-1]
	name, value, _ := strings.Cut(s, ":")
	value = strings.TrimSpace(value)
	name = strings.ToLower(strings.TrimSpace(name))
	switch {
	case name == "processes":
		if value != "N/A" {
			list.found = []smiProcess{}
		}
	case list.found == nil:
	case name == "gpu instance id", name == "process id" && (len(list.found) == 0 || last(list.found).PID != 0):
		list.found = append(list.found, smiProcess{})
		fallthrough
	default:
		if len(list.found) > 0 && pidLeaf[name] != "" {
			last(list.found).leaf(pidLeaf[name], value)
		}
	}
	return false
}

func last(list []smiProcess) *smiProcess { return &list[len(list)-1] }

// pidLeaf are the names in the XML for those in the log.
var pidLeaf = map[string]string{
	"gpu instance id": "gpu_instance_id", "compute instance id": "compute_instance_id",
	"process id": "pid", "type": "type", "name": "process_name", "used gpu memory": "used_memory",
}

// Quiet takes a log that was printed to its end.
func (r *pids) Quiet(now time.Time) bool {
	for _, list := range r.all {
		r.s.putProcesses(now, r.s.every, func(d *Device) bool { return d.Vendor == "nvidia" && d.Bus == list.bus && d.MIG == "" }, of(list.found, ""))
	}
	sampled := r.open
	r.all, r.open = nil, false
	return sampled
}

// logs is the stream where devices are divided: only the whole log in XML tells
// the memory and the processes of MIG instances. It is long, so that it comes
// every ten seconds at most.
func (s *Stream) logs() *tool.Feed {
	every := max(s.every, 10*time.Second)
	return &tool.Feed{Tool: "nvidia-smi", Every: every, Again: s.again, Log: s.log, Forms: []tool.Form{{
		Args:   func() []string { return append([]string{"-q", "-x"}, loop(every)...) },
		Reader: func() tool.Reader { return &logs{s: s, every: every} },
	}}}
}

type logs struct {
	s     *Stream
	every time.Duration
	xml   smiReader
}

func (r *logs) Line(now time.Time, s string) bool {
	if !r.xml.line(s) {
		return false
	}
	for i := range r.xml.log.devices {
		d := &r.xml.log.devices[i]
		whole := func(dev *Device) bool { return dev.UUID == d.uuid }
		r.s.putProcesses(now, r.every, whole, of(d.processes, ""))
		for j := range d.parts {
			p := &d.parts[j]
			part := func(dev *Device) bool { return dev.Parent == d.uuid && dev.Instance == p.instance }
			reading := p.reading(d)
			r.s.put(now, untold, r.every, part, reading)
			r.s.putProcesses(now, r.every, part, reading.Processes)
		}
	}
	return true
}
