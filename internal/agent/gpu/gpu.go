// Package gpu finds the GPUs of a machine and monitors them with the tools of their vendors.
//
// The tools are programs: nvidia-smi, amd-smi, xpu-smi, system_profiler. Package tool runs them, and kills those that
// hang; this package parses their output. Values that a tool does not report are absent, never zero. docs/adr/0009-gpu-tools.md
// explains why it uses programs and not the libraries below them.
package gpu

import (
	"time"

	"github.com/muster-dev/muster"
)

// Device is a GPU, or a part of one, that this user may open.
type Device struct {
	muster.GPU
	Driver     string   `json:"driver,omitempty"`
	Runtime    string   `json:"runtime,omitempty"`     // highest version of CUDA, ROCm, Metal, … that the driver supports
	PowerLimit *float64 `json:"power_limit,omitempty"` // watts
	Bus        string   `json:"bus,omitempty"`         // PCI address, such as 0000:3b:00.0
	Instance   string   `json:"instance,omitempty"`    // GPU and compute instance of a MIG instance, such as 1/0
	Reading    Reading  `json:"reading"`               // at the time of the probe
}

// Reading is the state of a device. Values that its tool does not report are absent.
type Reading struct {
	muster.GPULoad
	ECC       *uint64   `json:"ecc,omitempty"`       // uncorrectable memory errors since the driver was loaded
	Faults    []string  `json:"faults,omitempty"`    // such as "XID 79: GPU has fallen off the bus"
	Processes []Process `json:"processes,omitempty"` // that hold memory of it; nil if unknown, empty if there are none
}

// Process holds memory of a device.
type Process struct {
	PID      int         `json:"pid"`
	Name     string      `json:"name,omitempty"`
	Memory   muster.Size `json:"memory"`             // bytes; 0 if unknown
	Graphics bool        `json:"graphics,omitempty"` // it only draws, like a desktop or a game
}

// Readings are those of all devices at one time.
type Readings struct {
	At      time.Time
	Latency time.Duration // from the tool's query of the driver, or its output, until the readings were known here
	Devices []Reading     // in the order of the devices
}
