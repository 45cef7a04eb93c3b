// Package gpu speaks with the tools of the makers of GPUs: which devices there
// are, and how they do, again and again.
//
// The tools are programs: nvidia-smi, amd-smi, rocm-smi, xpu-smi, system_profiler.
// Package tool runs them, and kills those that hang; here they are read as far as
// they can be read: what they do not tell is absent, never zero. docs/adr/0009-gpu-tools.md
// says why programs and not the libraries under them.
package gpu

import (
	"time"

	"github.com/muster-dev/muster"
)

// Device is a device that this user may open.
type Device struct {
	muster.GPU
	Driver     string   `json:"driver,omitempty"`
	Runtime    string   `json:"runtime,omitempty"`     // highest version of CUDA, ROCm, Metal, … that the driver serves
	PowerLimit *float64 `json:"power_limit,omitempty"` // watts
	Bus        string   `json:"bus,omitempty"`         // PCI address, such as 0000:3b:00.0
	Instance   string   `json:"instance,omitempty"`    // of a MIG instance its GPU and compute instance, such as 1/0
	Reading    Reading  `json:"reading"`               // when it was found
}

// Reading is how a device does. What its tool does not tell is absent.
type Reading struct {
	muster.GPULoad
	ECC       *uint64   `json:"ecc,omitempty"`       // errors of its memory that could not be corrected, since the driver was loaded
	Faults    []string  `json:"faults,omitempty"`    // what is wrong with it, such as "XID 79: GPU has fallen off the bus"
	Processes []Process `json:"processes,omitempty"` // that hold memory of it; nil where unknown, empty where there are none
}

// Process holds memory of a device.
type Process struct {
	PID      int         `json:"pid"`
	Name     string      `json:"name,omitempty"`
	Memory   muster.Size `json:"memory"`             // bytes; 0 where unknown
	Graphics bool        `json:"graphics,omitempty"` // it only draws, as a desktop or a game does
}

// Readings are those of all devices at one time.
type Readings struct {
	At      time.Time
	Latency time.Duration // the latency: from when the tool asked the driver, or printed, to when it was known here
	Devices []Reading     // by the order of the devices
}
