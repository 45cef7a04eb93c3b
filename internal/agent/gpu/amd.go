package gpu

import (
	"cmp"
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

// probeAMD returns AMD's devices that ROCm can use: those of the kernel's compute driver, with the names that amd-smi reports. If the
// driver lists its devices, their index is the one that ROCm uses.
func (h *host) probeAMD(ctx context.Context) (found []Device, notes []string, err error) {
	nodes := h.kfdNodes()
	out, err := tool.Output(ctx, "amd-smi", "static", "--asic", "--bus", "--vram", "--driver", "--limit", "--json")
	if err == nil {
		found, err = parseAMD(out)
	}
	switch {
	case err != nil && len(nodes) == 0:
		return nil, nil, err
	case err != nil && !errors.Is(err, tool.ErrMissing):
		notes = append(notes, fmt.Sprintf("the names of AMD GPUs are unknown: %v", err))
	}
	if len(nodes) > 0 {
		found = mergeNames(nodes, found)
	}
	rocm := tool.FirstLine(read(filepath.Join(h.root, "opt/rocm/.info/version")))
	rocm, _, _ = strings.Cut(rocm, "-")

	usable, more := h.openable(ctx, found, h.amdFiles, "add it to the groups render and video")
	seen := map[string]bool{}
	for i := range usable {
		d := &usable[i]
		d.Runtime = rocm
		if d.UUID == "" || seen[d.UUID] { // older cards have none, and the partitions of one card share it
			d.UUID = fmt.Sprintf("amd-%s-%d", d.Bus, d.Index)
		}
		seen[d.UUID] = true
		d.Reading = h.amdReading(d.Bus)
		d.Reading.UUID = d.UUID
		d.Reading.Processes = h.kfdProcesses(d.Bus)
	}
	return usable, append(notes, more...), nil
}

// mergeNames adds the names that a tool knows to the kernel's devices.
func mergeNames(nodes, known []Device) []Device {
	for i := range nodes {
		n := &nodes[i]
		at := slices.IndexFunc(known, func(k Device) bool { return k.Bus == n.Bus })
		if at < 0 {
			continue
		}
		k := known[at]
		k.Index = n.Index
		k.UUID = cmp.Or(n.UUID, k.UUID)
		k.Memory = cmp.Or(k.Memory, n.Memory)
		*n = k
	}
	return nodes
}

// amdFiles returns the files that a program opens to compute on a device.
func (h *host) amdFiles(d *Device) []string {
	return append([]string{"/dev/kfd"}, h.renderFiles(d)...)
}

// amdValue is a value of amd-smi: a number, a text, or since ROCm 6.0 an object with a value and a unit.
type amdValue struct{ text, unit string }

func (v *amdValue) UnmarshalJSON(b []byte) error {
	var object struct {
		Value json.RawMessage `json:"value"`
		Unit  string          `json:"unit"`
	}
	*v = amdValue{}
	switch {
	case len(b) > 0 && b[0] == '{':
		_ = json.Unmarshal(b, &object) // another object has no value
		if len(object.Value) == 0 {
			return nil
		}
		v.unit, b = object.Unit, object.Value
	case len(b) > 0 && b[0] == '[':
		return nil // lists are not needed
	}
	v.text = strings.Trim(string(b), `"`)
	if text, unit, ok := strings.Cut(v.text, " "); ok && v.unit == "" {
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			v.text, v.unit = text, unit
		}
	}
	return nil
}

// size returns the value as a size. The units of amd-smi are powers of 1024.
func (v amdValue) size() *muster.Size {
	f, ok := tool.Number(v.text)
	for _, unit := range []string{"B", "KB", "MB", "GB"} {
		if unit == v.unit || v.unit == "" && unit == "MB" {
			if !ok || f < 0 || f > tool.MaxMemory {
				return nil
			}
			return new(muster.Size(f))
		}
		f *= 1024
	}
	return nil
}

// amdStatic is a device in amd-smi static --json.
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

// parseAMD parses amd-smi static --json: a list, since ROCm 7 in an object, sometimes after warnings.
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
		return nil, fmt.Errorf("cannot parse the JSON of amd-smi: %w", err)
	}
	found := make([]Device, 0, len(list))
	for _, s := range list {
		d := Device{Driver: cmp.Or(tool.Text(s.Driver.Version.text), tool.Text(s.Driver.Older.text)), Bus: tool.PCIAddress(s.Bus.BDF.text)}
		d.GPU = muster.GPU{UUID: amdUUID(s.ASIC.Serial.text), Index: max(0, s.GPU), Vendor: "amd", Name: cmp.Or(tool.Text(s.ASIC.Name.text), "AMD GPU")}
		if size := s.VRAM.Size.size(); size != nil {
			d.Memory = *size
		}
		d.PowerLimit = cmp.Or(tool.NonNegative(s.Limit.Socket.text), tool.NonNegative(s.Limit.Max.text))
		found = append(found, d)
	}
	return found, nil
}

// amdUUID returns the name for ROCR_VISIBLE_DEVICES: GPU- and the unique ID of the chip, 16 hexadecimal digits. It is "" if the ID is
// unknown: consumer cards before 2022 have none.
func amdUUID(s string) string {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "0x"), 16, 64)
	if err != nil || n == 0 || n == 1<<64-1 {
		return ""
	}
	return fmt.Sprintf("GPU-%016x", n)
}
