package gpu

import (
	"html"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// smiLog is the content of nvidia-smi -q -x.
type smiLog struct {
	driver, cuda string
	devices      []smiDevice
}

type smiDevice struct {
	bus, name, uuid string
	minor           int    // of its device file; -1 if unknown
	mig             bool   // it is in MIG mode and cannot be used as a whole
	total           string // memory, as printed
	powerLimit      *float64
	reading         Reading
	instances       []smiInstance
	processes       []smiProcess
}

// smiInstance is a MIG instance.
type smiInstance struct {
	index    int // among those of its device
	gi, ci   string
	uuid     string // drivers that do not print it here print it in the list
	total    *muster.Size
	used     *muster.Size
	ecc      *uint64
	instance string
}

type smiProcess struct {
	Process
	gi, ci string
}

// smiReader parses the XML of nvidia-smi line by line. It is not an XML parser on purpose: the tool prints each element on a line of its
// own, does not escape all text, and prints 150 KB each time on a machine with eight devices. It ignores unknown elements.
type smiReader struct {
	log      smiLog
	path     []string // open elements, from the outermost
	device   *smiDevice
	instance *smiInstance
	process  *smiProcess
}

// maxDepth limits the length of path for broken output.
const maxDepth = 32

// line parses a line and reports whether it ended a log.
func (r *smiReader) line(s string) (done bool) {
	s = strings.TrimSpace(s)
	switch {
	case len(s) < 3 || s[0] != '<' || s[1] == '?' || s[1] == '!':
	case s[1] == '/':
		return r.close(strings.TrimSuffix(s[2:], ">"))
	default:
		name, value, ok := strings.Cut(s[1:], ">")
		if !ok {
			return false
		}
		name, attributes, _ := strings.Cut(name, " ")
		if value, ok = strings.CutSuffix(value, "</"+name+">"); ok {
			r.leaf(name, value)
			return false
		}
		r.open(name, attributes)
	}
	return false
}

func (r *smiReader) open(name, attributes string) {
	switch name {
	case "nvidia_smi_log":
		*r = smiReader{path: r.path[:0]}
	case "gpu":
		_, id, _ := strings.Cut(attributes, `"`)
		id, _, _ = strings.Cut(id, `"`)
		r.log.devices = append(r.log.devices, smiDevice{bus: tool.PCIAddress(id), minor: -1})
		r.device = &r.log.devices[len(r.log.devices)-1]
	case "mig_device":
		if r.device != nil {
			r.device.instances = append(r.device.instances, smiInstance{index: -1})
			r.instance = &r.device.instances[len(r.device.instances)-1]
		}
	case "processes":
		if r.device != nil && r.device.processes == nil {
			r.device.processes = []smiProcess{}
		}
	case "process_info":
		if r.device != nil {
			r.device.processes = append(r.device.processes, smiProcess{})
			r.process = &r.device.processes[len(r.device.processes)-1]
		}
	}
	if len(r.path) < maxDepth {
		r.path = append(r.path, name)
	}
}

func (r *smiReader) close(name string) (done bool) {
	for len(r.path) > 0 { // an unclosed element ends with its parent
		last := r.path[len(r.path)-1]
		r.path = r.path[:len(r.path)-1]
		if last == name {
			break
		}
	}
	switch name {
	case "gpu":
		r.device, r.instance, r.process = nil, nil, nil
	case "mig_device":
		r.instance = nil
	case "process_info":
		r.process = nil
	case "nvidia_smi_log":
		return true
	}
	return false
}

// parent returns the element around a value.
func (r *smiReader) parent() string {
	if len(r.path) == 0 {
		return ""
	}
	return r.path[len(r.path)-1]
}

// inElement reports whether an element is open.
func (r *smiReader) inElement(name string) bool {
	return slices.Contains(r.path, name)
}

func (r *smiReader) leaf(name, value string) {
	switch {
	case r.process != nil:
		r.process.leaf(name, value)
	case r.instance != nil:
		r.instance.leaf(r.parent(), name, value)
	case r.device != nil:
		r.deviceLeaf(name, value)
	case name == "driver_version":
		r.log.driver = tool.Text(value)
	case name == "cuda_version":
		r.log.cuda = tool.Text(value)
	}
}

func (r *smiReader) deviceLeaf(name, value string) {
	d := r.device
	switch r.parent() {
	case "gpu":
		switch name {
		case "product_name":
			d.name = tool.Text(value)
		case "uuid":
			d.uuid = tool.Text(value)
		case "minor_number":
			if n, err := strconv.Atoi(value); err == nil && n >= 0 {
				d.minor = n
			}
		case "gpu_recovery_action":
			if v := tool.Text(value); v != "" && v != "None" {
				d.addFault("the driver requests recovery: " + strings.ToLower(v))
			}
		}
	case "mig_mode":
		if name == "current_mig" {
			d.mig = value == "Enabled"
		}
	case "gpu_reset_status":
		if name == "reset_required" && value == "Yes" {
			d.addFault("GPU requires reset")
		}
	case "remapped_rows":
		if name == "remapped_row_failure" && value == "Yes" {
			d.addFault("its memory has more bad rows than can be remapped")
		}
	case "fb_memory_usage":
		switch name {
		case "total":
			d.total = value
			d.checkReadable("memory", value)
		case "used":
			d.reading.Memory = tool.Mebibytes(value)
			d.checkReadable("memory", value)
		}
	case "utilization":
		if name == "gpu_util" {
			d.reading.Utilization = tool.Fraction(value)
		}
	case "temperature":
		if name == "gpu_temp" {
			d.reading.Temperature = tool.Temperature(value)
			d.checkReadable("temperature", value)
		}
	case "power_readings", "gpu_power_readings":
		d.power(name, value)
	default:
		if r.inElement("ecc_errors") && r.inElement("volatile") {
			d.ecc(r.parent(), name, value)
		}
	}
}

// power parses the power draw: until driver 570 it has one name, later there is an average and an instant value.
func (d *smiDevice) power(name, value string) {
	switch name {
	case "power_draw", "average_power_draw":
		d.reading.Power = tool.NonNegative(value)
	case "instant_power_draw":
		if d.reading.Power == nil {
			d.reading.Power = tool.NonNegative(value)
		}
	case "power_limit", "current_power_limit":
		d.powerLimit = tool.NonNegative(value)
	}
}

// ecc adds up uncorrectable errors. Devices since Turing report them by kind of memory, earlier ones as a total of double bit errors.
func (d *smiDevice) ecc(parent, name, value string) {
	byKind := parent == "volatile" && strings.Contains(name, "uncorrectable")
	total := parent == "double_bit" && name == "total"
	n := tool.Count(value)
	if !byKind && !total || n == nil {
		return
	}
	if d.reading.ECC != nil {
		*n += *d.reading.ECC
	}
	d.reading.ECC = n
}

// checkReadable adds a fault if a value that every device has could not be read.
func (d *smiDevice) checkReadable(name, value string) {
	if tool.Unreadable(value) {
		d.addFault("the driver cannot read its " + name)
	} else if reason := tool.UnhealthyReason(value); reason != "" {
		d.addFault(reason)
	}
}

func (d *smiDevice) addFault(reason string) { d.reading.Faults = appendFault(d.reading.Faults, reason) }

// appendFault appends a fault unless it is in the list.
func appendFault(faults []string, reason string) []string {
	if slices.Contains(faults, reason) {
		return faults
	}
	return append(faults, reason)
}

func (p *smiInstance) leaf(parent, name, value string) {
	switch {
	case parent == "mig_device" && name == "index":
		if n, err := strconv.Atoi(value); err == nil && n >= 0 {
			p.index = n
		}
	case name == "gpu_instance_id":
		p.gi = tool.Text(value)
	case name == "compute_instance_id":
		p.ci = tool.Text(value)
	case parent == "mig_device" && name == "uuid":
		p.uuid = tool.Text(value)
	case parent == "fb_memory_usage" && name == "total":
		p.total = tool.Mebibytes(value)
	case parent == "fb_memory_usage" && name == "used":
		p.used = tool.Mebibytes(value)
	case parent == "volatile_count" && name == "sram_uncorrectable":
		p.ecc = tool.Count(value)
	}
	if p.gi != "" && p.ci != "" {
		p.instance = p.gi + "/" + p.ci
	}
}

func (p *smiProcess) leaf(name, value string) {
	switch name {
	case "gpu_instance_id":
		p.gi = tool.Text(value)
	case "compute_instance_id":
		p.ci = tool.Text(value)
	case "pid":
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			p.PID = n
		}
	case "type":
		p.Graphics = value == "G"
	case "process_name":
		p.Name = processName(html.UnescapeString(value))
	case "used_memory":
		if m := tool.Mebibytes(value); m != nil {
			p.Memory = *m
		}
	}
}

// processesOf returns the processes of a MIG instance, or with "" of the whole device.
func processesOf(all []smiProcess, instance string) []Process {
	if all == nil {
		return nil
	}
	found := []Process{}
	for _, p := range all {
		if p.PID > 0 && (instance == "" || p.gi+"/"+p.ci == instance) {
			found = append(found, p.Process)
		}
	}
	return found
}

// processName returns the program of a command line, cut to 200 bytes.
func processName(s string) string {
	s = strings.TrimSpace(s)
	if program, _, ok := strings.Cut(s, " -"); ok {
		s = program
	}
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "")
	}
	if s == "[Not Found]" || s == "N/A" || s == "[Insufficient Permissions]" {
		return ""
	}
	return s
}

// parseLog parses the output of nvidia-smi -q -x.
func parseLog(out string) (log smiLog, complete bool) {
	var r smiReader
	for line := range strings.Lines(out) {
		if r.line(line) {
			complete = true
			break
		}
	}
	return r.log, complete
}

var (
	listedGPU = regexp.MustCompile(`^GPU (\d+): (.*) \(UUID: ([^\s()]+)\)`)
	listedMIG = regexp.MustCompile(`^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: ([^\s()]+)\)`)
)

// smiListEntry is a MIG instance in the output of nvidia-smi -L.
type smiListEntry struct {
	parent        string // UUID
	index         int    // among those of its device
	profile, uuid string
}

// parseList parses the MIG instances in the output of nvidia-smi -L.
func parseList(out string) (instances []smiListEntry) {
	parent := ""
	for line := range strings.Lines(out) {
		if m := listedGPU.FindStringSubmatch(line); m != nil {
			parent = m[3]
		} else if m := listedMIG.FindStringSubmatch(line); m != nil && parent != "" {
			if n, err := strconv.Atoi(m[2]); err == nil {
				instances = append(instances, smiListEntry{parent: parent, index: n, profile: m[1], uuid: m[3]})
			}
		}
	}
	return instances
}
