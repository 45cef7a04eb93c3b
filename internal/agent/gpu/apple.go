package gpu

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// probeApple returns the GPU in an Apple processor, which PyTorch uses as MPS. Other vendors' GPUs in older machines are not offered:
// no current framework computes on them.
func (h *host) probeApple(ctx context.Context) ([]Device, []string, error) {
	out, err := tool.Output(ctx, "system_profiler", "SPDisplaysDataType", "SPHardwareDataType", "-json")
	if err != nil {
		return nil, nil, err
	}
	found, err := parseApple(out)
	return found, nil, err
}

// parseApple parses system_profiler -json. The memory is the part of the machine's memory that Metal lets a GPU use: two thirds, or
// three quarters if there are more than 36 GB.
func parseApple(out string) (found []Device, err error) {
	var p struct {
		Displays []struct {
			Name   string `json:"sppci_model"`
			Vendor string `json:"spdisplays_vendor"`
			Metal  string `json:"spdisplays_mtlgpufamilysupport"`
			Older  string `json:"spdisplays_metal"`
		} `json:"SPDisplaysDataType"`
		Hardware []struct {
			Memory string `json:"physical_memory"`
			UUID   string `json:"platform_UUID"`
		} `json:"SPHardwareDataType"`
	}
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		return nil, fmt.Errorf("cannot list Apple GPUs: cannot parse the JSON of system_profiler: %w", err)
	}
	var memory muster.Size
	machine := ""
	for _, hw := range p.Hardware {
		machine = hw.UUID
		// The GB are of 1024 MB.
		if all, err := muster.ParseSize(strings.NewReplacer(" GB", "GiB", " MB", "MiB", " TB", "TiB").Replace(hw.Memory)); err == nil && all <= tool.MaxMemory {
			if memory = all / 3 * 2; all > 36<<30 {
				memory = all / 4 * 3
			}
		}
	}
	for _, d := range p.Displays {
		if !strings.HasPrefix(d.Name, "Apple ") && d.Vendor != "sppci_vendor_Apple" {
			continue
		}
		dev := Device{Runtime: strings.Replace(strings.TrimPrefix(d.Metal, "spdisplays_metal"), "supported", "", 1)}
		if dev.Runtime != "" {
			dev.Runtime = "Metal " + dev.Runtime
		}
		dev.GPU = muster.GPU{UUID: fmt.Sprintf("apple-%s-%d", strings.ToLower(machine), len(found)), Index: len(found), Vendor: "apple", Name: d.Name, Memory: memory}
		dev.Reading.UUID = dev.UUID
		found = append(found, dev)
	}
	return found, nil
}
