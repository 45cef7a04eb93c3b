package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// probeAMD finds the devices of AMD that ROCm can use: those of the kernel's compute
// driver, named by amd-smi or the older rocm-smi. Where that driver tells its
// devices, their index is the one by which ROCm counts.
func (h *host) probeAMD(ctx context.Context) (found []Device, notes []string, err error) {
	nodes := h.kfdNodes()
	found, err = queryAMD(ctx)
	if err != nil && len(nodes) > 0 {
		if !errors.Is(err, tool.ErrMissing) {
			notes = append(notes, fmt.Sprintf("AMD GPUs have no names: %v", err))
		}
		err = nil
	}
	if err != nil {
		return nil, nil, err
	}
	if len(nodes) > 0 {
		found = mergeNames(nodes, found)
	}
	rocm := tool.FirstLine(read(filepath.Join(h.root, "opt/rocm/.info/version")))
	rocm, _, _ = strings.Cut(rocm, "-")

	var files []string
	for i := range found {
		files = append(files, h.amdFiles(&found[i])...)
	}
	slices.Sort(files)
	denied := tool.Inaccessible(ctx, h.root, slices.Compact(files))
	seen := map[string]bool{}
	usable := found[:0]
	for i := range found {
		d := &found[i]
		if slices.ContainsFunc(h.amdFiles(d), func(f string) bool { return denied[f] }) {
			notes = append(notes, fmt.Sprintf("AMD GPU %d (%s) is left out: this user may not open %s: add it to the groups render and video", d.Index, d.Name, strings.Join(h.amdFiles(d), " and ")))
			continue
		}
		d.Runtime = rocm
		if d.UUID == "" || seen[d.UUID] { // older cards tell none, and the partitions of one card the same
			d.UUID = fmt.Sprintf("amd-%s-%d", d.Bus, d.Index)
		}
		seen[d.UUID] = true
		if r := h.amdReading(d.Bus); r.Memory != nil || r.Temperature != nil {
			d.Reading = r
		}
		d.Reading.UUID = d.UUID
		d.Reading.Processes = h.kfdProcesses(d.Bus)
		usable = append(usable, *d)
	}
	return usable, notes, nil
}

// mergeNames gives the devices of the kernel the names that a tool knows.
func mergeNames(nodes, known []Device) []Device {
	for i := range nodes {
		n := &nodes[i]
		at := slices.IndexFunc(known, func(k Device) bool { return k.Bus == n.Bus })
		if at < 0 {
			continue
		}
		k := known[at]
		k.Index = n.Index
		if n.UUID != "" {
			k.UUID = n.UUID
		}
		if k.Memory == 0 {
			k.Memory = n.Memory
		}
		*n = k
	}
	return nodes
}

// amdFiles are the files that a program opens to compute on a device.
func (h *host) amdFiles(d *Device) []string {
	files := []string{"/dev/kfd"}
	render, _ := filepath.Glob(filepath.Join(h.root, "sys/bus/pci/devices", d.Bus, "drm/renderD*"))
	if d.Bus != "" && len(render) > 0 {
		files = append(files, "/dev/dri/"+filepath.Base(render[0]))
	}
	return files
}

// queryAMD asks amd-smi, and where that is missing or fails rocm-smi.
func queryAMD(ctx context.Context) ([]Device, error) {
	out, err := tool.Output(ctx, "amd-smi", "static", "--asic", "--bus", "--vram", "--driver", "--limit", "--json")
	if err == nil {
		var found []Device
		if found, err = parseAMD(out); err == nil {
			return found, nil
		}
	}
	out, rocmErr := tool.Output(ctx, "rocm-smi", "--showproductname", "--showuniqueid", "--showbus", "--showmeminfo", "vram",
		"--showuse", "--showtemp", "--showpower", "--showmaxpower", "--showdriverversion", "--json")
	if rocmErr == nil {
		var found []Device
		if found, rocmErr = parseROCm(out); rocmErr == nil {
			return found, nil
		}
	}
	if errors.Is(err, tool.ErrMissing) {
		err = rocmErr
	}
	return nil, err
}

// amdValue is a value of amd-smi: a number, a text, or since ROCm 6.0 an object
// with a value and its unit.
type amdValue struct{ text, unit string }

func (v *amdValue) UnmarshalJSON(b []byte) error {
	var object struct {
		Value json.RawMessage `json:"value"`
		Unit  string          `json:"unit"`
	}
	*v = amdValue{}
	switch {
	case len(b) > 0 && b[0] == '{':
		_ = json.Unmarshal(b, &object) // one of another kind is no value
		if len(object.Value) == 0 {
			return nil
		}
		v.unit, b = object.Unit, object.Value
	case len(b) > 0 && b[0] == '[':
		return nil // a list is nothing that is asked for
	}
	v.text = strings.Trim(string(b), `"`)
	if text, unit, ok := strings.Cut(v.text, " "); ok && v.unit == "" {
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			v.text, v.unit = text, unit
		}
	}
	return nil
}

// size reads a size. The MB of amd-smi are of 1024 KB of 1024 bytes.
func (v amdValue) size() *muster.Size {
	f, ok := tool.Number(v.text)
	for _, unit := range []string{"B", "KB", "MB", "GB"} {
		if unit == v.unit || v.unit == "" && unit == "MB" {
			if !ok || f < 0 || f > tool.MaxMemory {
				return nil
			}
			size := muster.Size(f)
			return &size
		}
		f *= 1024
	}
	return nil
}

// amdStatic is one device in amd-smi static --json.
type amdStatic struct {
	GPU  int `json:"gpu"`
	ASIC struct {
		Name   amdValue `json:"market_name"`
		Serial amdValue `json:"asic_serial"`
	} `json:"asic"`
	Bus struct {
		BDF amdValue `json:"bdf"`
	} `json:"bus"`
	VRAM struct {
		Size amdValue `json:"size"`
	} `json:"vram"`
	Driver struct {
		Version amdValue `json:"version"`
		Older   amdValue `json:"driver_version"`
	} `json:"driver"`
	Limit struct {
		Socket amdValue `json:"socket_power"`
		Max    amdValue `json:"max_power"`
	} `json:"limit"`
}

// parseAMD reads what amd-smi static --json prints: a list, since ROCm 7 within
// an object, with warnings before it now and then.
func parseAMD(out string) ([]Device, error) {
	at := strings.IndexAny(out, "[{")
	if at < 0 {
		return nil, fmt.Errorf("amd-smi printed no JSON: %q", tool.FirstLine(out))
	}
	var list []amdStatic
	var err error
	if dec := json.NewDecoder(strings.NewReader(out[at:])); out[at] == '[' {
		err = dec.Decode(&list)
	} else {
		var wrapper struct {
			List []amdStatic `json:"gpu_data"`
		}
		err = dec.Decode(&wrapper)
		list = wrapper.List
	}
	if err != nil {
		return nil, fmt.Errorf("amd-smi printed JSON that cannot be read: %w", err)
	}
	found := make([]Device, 0, len(list))
	for _, s := range list {
		d := Device{Driver: tool.Text(s.Driver.Version.text), Bus: tool.PCIAddress(s.Bus.BDF.text)}
		if d.Driver == "" {
			d.Driver = tool.Text(s.Driver.Older.text)
		}
		d.GPU = muster.GPU{UUID: amdUUID(s.ASIC.Serial.text), Index: max(0, s.GPU), Vendor: "amd", Name: tool.Text(s.ASIC.Name.text)}
		if size := s.VRAM.Size.size(); size != nil {
			d.Memory = *size
		}
		if d.PowerLimit = tool.NonNegative(s.Limit.Socket.text); d.PowerLimit == nil {
			d.PowerLimit = tool.NonNegative(s.Limit.Max.text)
		}
		if d.Name == "" {
			d.Name = "AMD GPU"
		}
		found = append(found, d)
	}
	return found, nil
}

// amdUUID is the name that ROCR_VISIBLE_DEVICES takes: GPU- and the unique
// number of the chip, 16 digits of hexadecimal. It is "" where that is unknown:
// consumer cards before 2022 tell none.
func amdUUID(s string) string {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "0x"), 16, 64)
	if err != nil || n == 0 || n == 1<<64-1 {
		return ""
	}
	return fmt.Sprintf("GPU-%016x", n)
}

// parseROCm reads what rocm-smi --json prints: an object with one for each card,
// whose keys differ in case and words from version to version.
func parseROCm(out string) ([]Device, error) {
	at := strings.Index(out, "{")
	if at < 0 {
		return nil, fmt.Errorf("rocm-smi printed no JSON: %q", tool.FirstLine(out))
	}
	var all map[string]map[string]any
	if err := json.NewDecoder(strings.NewReader(out[at:])).Decode(&all); err != nil {
		return nil, fmt.Errorf("rocm-smi printed JSON that cannot be read: %w", err)
	}
	var found []Device
	for key, card := range all {
		index, err := strconv.Atoi(strings.TrimPrefix(key, "card"))
		if err != nil || index < 0 || !strings.HasPrefix(key, "card") {
			continue
		}
		text := lookupFold(card)
		d := Device{Driver: lookupFold(all["system"])("Driver version"), Bus: tool.PCIAddress(text("PCI Bus"))}
		d.GPU = muster.GPU{UUID: amdUUID(text("Unique ID")), Index: index, Vendor: "amd", Name: "AMD GPU"}
		for _, k := range []string{"Card series", "Device Name", "Card model"} {
			if name := text(k); name != "" && !strings.HasPrefix(name, "0x") {
				d.Name = name
				break
			}
		}
		if size := (amdValue{text("VRAM Total Memory (B)"), "B"}).size(); size != nil {
			d.Memory = *size
		}
		d.PowerLimit = tool.NonNegative(text("Max Graphics Package Power (W)"))
		r := &d.Reading
		r.Memory = (amdValue{text("VRAM Total Used Memory (B)"), "B"}).size()
		r.Utilization = tool.Fraction(text("GPU use (%)"))
		for _, k := range []string{"Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)"} {
			if r.Temperature = tool.Temperature(text(k)); r.Temperature != nil {
				break
			}
		}
		for _, k := range []string{"Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)"} {
			if r.Power = tool.NonNegative(text(k)); r.Power != nil {
				break
			}
		}
		found = append(found, d)
	}
	slices.SortFunc(found, func(a, b Device) int { return a.Index - b.Index })
	return found, nil
}

// lookupFold looks texts up in an object, without regard to the case of its keys.
func lookupFold(object map[string]any) func(key string) string {
	return func(key string) string {
		for k, v := range object {
			if strings.EqualFold(k, key) {
				return tool.Text(strings.TrimSpace(fmt.Sprint(v)))
			}
		}
		return ""
	}
}
