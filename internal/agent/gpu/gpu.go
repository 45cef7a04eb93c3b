// Package gpu speaks with the tools of the makers of GPUs: which devices there
// are, and how they do, again and again.
package gpu

import (
	"time"

	"github.com/muster-dev/muster"
)

// Device is a device that this user may open.
type Device struct {
	muster.GPU
	Driver     string   `json:"driver,omitempty"`
	Runtime    string   `json:"runtime,omitempty"`     // highest version of CUDA, ROCm, … that the driver serves
	PowerLimit *float64 `json:"power_limit,omitempty"` // watts
	Reading
}

// Reading is how a device does. What its tool does not tell is absent.
type Reading struct {
	muster.GPULoad
	ECC       *uint64   `json:"ecc,omitempty"`       // errors of its memory that could not be corrected, since the driver was loaded
	Faults    []string  `json:"faults,omitempty"`    // what is wrong with it, such as "XID 79: the GPU has fallen off the bus"
	Processes []Process `json:"processes,omitempty"` // that hold memory of it; nil where unknown
}

// Process holds memory of a device.
type Process struct {
	PID    int         `json:"pid"`
	Name   string      `json:"name,omitempty"`
	Memory muster.Size `json:"memory"` // bytes; 0 where unknown
}

// Readings are those of all devices at one time.
type Readings struct {
	At   time.Time
	Took time.Duration // the latency: from asking the tools, or from their last line, to this
	Each []Reading     // by the order of the devices
}
