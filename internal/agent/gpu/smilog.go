package gpu

import (
	"cmp"
	"html"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

type smiDevice struct {
	Device
	minor     int  // of its device file; -1 if unknown
	mig       bool // it is in MIG mode and cannot be used as a whole
	instances []smiInstance
	processes []smiProcess
}

type smiInstance struct {
	index       int    // among those of its device
	gi, ci, id  string // of the GPU instance, of the compute instance, and of both, such as 1/0
	uuid        string // drivers that do not print it here print it in the list
	total, used *muster.Size
	ecc         *uint64
}

type smiProcess struct {
	Process
	gi, ci string
}

// smiReader parses the XML of nvidia-smi line by line. It is not an XML parser on purpose: the tool prints each element on a line of its
// own, does not escape all text, and prints 150 KB each time on a machine with eight devices. It ignores unknown elements.
type smiReader struct {
	driver, cuda string
	devices      []smiDevice
	path         []string // open elements, from the outermost
	device       *smiDevice
	instance     *smiInstance
	process      *smiProcess
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
		r.devices = append(r.devices, smiDevice{Device: Device{Driver: r.driver, Runtime: r.cuda, Bus: tool.PCIAddress(id)}, minor: -1})
		r.device = &r.devices[len(r.devices)-1]
		r.device.Vendor = "nvidia"
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

func (r *smiReader) leaf(name, value string) {
	switch {
	case r.process != nil:
		r.process.leaf(name, value)
	case r.instance != nil:
		r.instance.leaf(r.parent(), name, value)
	case r.device != nil && slices.Contains(r.path, "ecc_errors") && slices.Contains(r.path, "volatile"):
		r.device.ecc(r.parent(), name, value)
	case r.device != nil:
		r.device.leaf(strings.TrimPrefix(r.parent(), "gpu_")+"/"+name, value) // newer drivers have gpu_power_readings
	case name == "driver_version":
		r.driver = tool.Text(value)
	case name == "cuda_version":
		r.cuda = tool.Text(value)
	}
}

// leaf sets a value of the device by its path: the element around it, and its own.
func (d *smiDevice) leaf(path, value string) {
	switch path {
	case "gpu/product_name":
		d.Name = tool.Text(value)
	case "gpu/uuid":
		d.UUID = tool.Text(value)
	case "gpu/minor_number":
		if n, err := strconv.Atoi(value); err == nil && n >= 0 {
			d.minor = n
		}
	case "gpu/gpu_recovery_action":
		if v := tool.Text(value); v != "" && v != "None" {
			d.addFault("the driver requests recovery: " + strings.ToLower(v))
		}
	case "mig_mode/current_mig":
		d.mig = value == "Enabled"
	case "reset_status/reset_required":
		if value == "Yes" {
			d.addFault("GPU requires reset")
		}
	case "remapped_rows/remapped_row_failure":
		if value == "Yes" {
			d.addFault("its memory has more bad rows than can be remapped")
		}
	case "fb_memory_usage/total":
		if m := tool.Mebibytes(value); m != nil {
			d.Memory = *m
		}
		d.checkReadable("memory", value)
	case "fb_memory_usage/used":
		d.Reading.Memory = tool.Mebibytes(value)
		d.checkReadable("memory", value)
	case "utilization/gpu_util":
		d.Reading.Utilization = tool.Fraction(value)
	case "temperature/gpu_temp":
		d.Reading.Temperature = tool.Temperature(value)
		d.checkReadable("temperature", value)
	case "power_readings/power_draw", "power_readings/average_power_draw": // until driver 570 one, later also an instant value
		d.Reading.Power = tool.NonNegative(value)
	case "power_readings/instant_power_draw":
		d.Reading.Power = cmp.Or(d.Reading.Power, tool.NonNegative(value))
	case "power_readings/power_limit", "power_readings/current_power_limit":
		d.PowerLimit = tool.NonNegative(value)
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
	if d.Reading.ECC != nil {
		*n += *d.Reading.ECC
	}
	d.Reading.ECC = n
}

// checkReadable adds a fault if a value that every device has could not be read.
func (d *smiDevice) checkReadable(name, value string) {
	if tool.Unreadable(value) {
		d.addFault("the driver cannot read its " + name)
	} else if reason := tool.UnhealthyReason(value); reason != "" {
		d.addFault(reason)
	}
}

func (d *smiDevice) addFault(reason string) { d.Reading.Faults = appendFault(d.Reading.Faults, reason) }

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
		p.id = p.gi + "/" + p.ci
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
func parseLog(out string) (devices []smiDevice, complete bool) {
	var r smiReader
	for line := range strings.Lines(out) {
		if r.line(strings.Clone(line)) { // a copy, because the devices would keep all of the output in memory
			return r.devices, true
		}
	}
	return r.devices, false
}

var (
	listedGPU = lazyregexp.New(`^GPU (\d+): (.*) \(UUID: ([^\s()]+)\)`)
	listedMIG = lazyregexp.New(`^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: ([^\s()]+)\)`)
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
		if m := listedGPU.Get().FindStringSubmatch(line); m != nil {
			parent = m[3]
		} else if m := listedMIG.Get().FindStringSubmatch(line); m != nil && parent != "" {
			if n, err := strconv.Atoi(m[2]); err == nil {
				instances = append(instances, smiListEntry{parent: parent, index: n, profile: m[1], uuid: m[3]})
			}
		}
	}
	return instances
}
