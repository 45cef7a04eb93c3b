package gpu

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// nvidiaSMI runs nvidia-smi so that it prints once per interval.
func (s *Stream) nvidiaSMI(interval time.Duration, args func() []string, reader func() tool.Reader) *tool.Stream {
	loop := []string{"-lms", strconv.Itoa(int(interval / time.Millisecond))}
	if interval%time.Second == 0 {
		loop = []string{"-l", strconv.Itoa(int(interval / time.Second))}
	}
	return &tool.Stream{
		Tool: "nvidia-smi", Interval: interval, MinBackoff: s.minBackoff, Log: s.log, Reader: reader,
		Args: func() []string { return append(args(), loop...) },
	}
}

// nvidiaMetrics is the stream of readings of NVIDIA: a line per device and interval, such as
//
//	2024/05/10 12:00:00.123, GPU-5c89852c-…, 97, 30521, 61, 287.13, 0
func (s *Stream) nvidiaMetrics() *tool.Stream {
	fields := []string{"timestamp", "uuid", "utilization.gpu", "memory.used", "temperature.gpu", "power.draw", "ecc.errors.uncorrected.volatile.total"}
	args := func() []string {
		return []string{"--query-gpu=" + strings.Join(fields, ","), "--format=csv,noheader,nounits"}
	}
	return s.nvidiaSMI(s.interval, args, func() tool.Reader {
		return &metricsReader{s: s, fields: fields, drop: func(f string) { fields = without(fields, f) }}
	})
}

func without(fields []string, field string) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return f == field })
}

type metricsReader struct {
	s      *Stream
	fields []string
	drop   func(field string) // called for one that this driver does not know
}

func (r *metricsReader) Line(now time.Time, s string) bool {
	if rest, ok := strings.CutPrefix(s, `Field "`); ok && strings.Contains(rest, "not a valid field") {
		if name, _, _ := strings.Cut(rest, `"`); name != "uuid" && slices.Contains(r.fields, name) {
			r.drop(name)
		}
		return false
	}
	uuid, reading, asked := parseMetrics(s, r.fields)
	if uuid == "" {
		return false
	}
	r.s.setReading(now, latency(asked, now, r.s.interval), r.s.interval, func(d *Device) bool { return d.UUID == uuid }, reading)
	return true
}

// latency returns the time since the query of the driver, or unknownLatency if it is not plausible: the clock may have been set
// since.
func latency(asked, now time.Time, interval time.Duration) time.Duration {
	if took := now.Sub(asked); !asked.IsZero() && took >= 0 && took <= interval+tool.Timeout {
		return took
	}
	return unknownLatency
}

// parseMetrics parses a line of values in the order of fields. It returns no UUID for another line.
func parseMetrics(s string, fields []string) (uuid string, r Reading, asked time.Time) {
	at := 0
	for value := range strings.SplitSeq(s, ",") {
		if at == len(fields) {
			return "", Reading{}, asked
		}
		value = strings.TrimSpace(value)
		switch fields[at] {
		case "timestamp":
			if t, err := time.Parse("2006/01/02 15:04:05.000", value); err == nil { // in UTC: see TZ in tool
				asked = t
			}
		case "uuid":
			uuid = value
		case "utilization.gpu":
			r.Utilization = tool.Fraction(value)
		case "memory.used":
			r.Memory = tool.Mebibytes(value)
			if tool.Unreadable(value) {
				r.Faults = appendFault(r.Faults, "the driver cannot read its memory")
			}
		case "temperature.gpu":
			r.Temperature = tool.Temperature(value)
			if tool.Unreadable(value) {
				r.Faults = appendFault(r.Faults, "the driver cannot read its temperature")
			}
		case "power.draw":
			r.Power = tool.NonNegative(value)
		case "ecc.errors.uncorrected.volatile.total":
			r.ECC = tool.Count(value)
		}
		if reason := tool.UnhealthyReason(value); reason != "" {
			r.Faults = appendFault(r.Faults, reason)
		}
		at++
	}
	if at != len(fields) || !strings.HasPrefix(uuid, "GPU-") && !strings.HasPrefix(uuid, "MIG-") {
		return "", Reading{}, asked
	}
	r.UUID = uuid
	return uuid, r, asked
}

// nvidiaProcesses is the stream of the processes on NVIDIA's devices. It uses the log and not --query-compute-apps, which prints
// nothing if there are no processes, as if it hung, and leaves out those that draw.
func (s *Stream) nvidiaProcesses() *tool.Stream {
	args := func() []string { return []string{"-q", "-d", "PIDS"} }
	return s.nvidiaSMI(s.interval, args, func() tool.Reader { return &processReader{s: s} })
}

// processReader parses the log of nvidia-smi -q -d PIDS: for each device a header with its address, and a list.
type processReader struct {
	s     *Stream
	lists []processList // of the current log
}

type processList struct {
	bus   string
	found []smiProcess // nil if unknown
}

func (r *processReader) Line(now time.Time, s string) (sampled bool) {
	if strings.Contains(s, "NVSMI LOG") {
		return r.FlushIdle(now)
	}
	if rest, ok := strings.CutPrefix(s, "GPU "); ok {
		if bus := tool.PCIAddress(rest); bus != "" {
			r.lists = append(r.lists, processList{bus: bus})
			return false
		}
	}
	if len(r.lists) == 0 {
		return false
	}
	list := &r.lists[len(r.lists)-1]
	name, value, _ := strings.Cut(s, ":")
	value = strings.TrimSpace(value)
	name = strings.ToLower(strings.TrimSpace(name))
	switch {
	case name == "processes":
		if value != "N/A" {
			list.found = []smiProcess{}
		}
	case list.found == nil:
	case name == "gpu instance id", name == "process id" && (len(list.found) == 0 || lastProcess(list.found).PID != 0):
		list.found = append(list.found, smiProcess{})
		fallthrough
	default:
		if len(list.found) > 0 && xmlNames[name] != "" {
			lastProcess(list.found).leaf(xmlNames[name], value)
		}
	}
	return false
}

func lastProcess(list []smiProcess) *smiProcess { return &list[len(list)-1] }

// xmlNames maps names in the log to those in the XML.
var xmlNames = map[string]string{
	"gpu instance id": "gpu_instance_id", "compute instance id": "compute_instance_id",
	"process id": "pid", "type": "type", "name": "process_name", "used gpu memory": "used_memory",
}

// FlushIdle processes a complete log.
func (r *processReader) FlushIdle(now time.Time) bool {
	for _, list := range r.lists {
		r.s.setProcesses(now, r.s.interval, func(d *Device) bool { return d.Vendor == "nvidia" && d.Bus == list.bus && d.MIG == "" }, processesOf(list.found, ""))
	}
	sampled := len(r.lists) > 0
	r.lists = nil
	return sampled
}

// nvidiaLogs is the stream for machines with MIG instances: only the whole log in XML has the memory and the processes of instances. It
// is long, so it is printed every ten seconds at most.
func (s *Stream) nvidiaLogs() *tool.Stream {
	interval := max(s.interval, 10*time.Second)
	args := func() []string { return []string{"-q", "-x"} }
	return s.nvidiaSMI(interval, args, func() tool.Reader { return &logReader{s: s, interval: interval} })
}

type logReader struct {
	s        *Stream
	interval time.Duration
	xml      smiReader
}

func (r *logReader) Line(now time.Time, s string) bool {
	if !r.xml.line(s) {
		return false
	}
	for i := range r.xml.devices {
		d := &r.xml.devices[i]
		matchDevice := func(dev *Device) bool { return dev.UUID == d.UUID }
		r.s.setProcesses(now, r.interval, matchDevice, processesOf(d.processes, ""))
		for j := range d.instances {
			p := &d.instances[j]
			matchInstance := func(dev *Device) bool { return dev.Parent == d.UUID && dev.Instance == p.id }
			reading := p.readingOf(d)
			r.s.setReading(now, unknownLatency, r.interval, matchInstance, reading)
			r.s.setProcesses(now, r.interval, matchInstance, reading.Processes)
		}
	}
	return true
}
