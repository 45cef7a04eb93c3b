package process

import (
	"context"
	"strings"
)

// gpu lets the task see the devices that it was granted and no others, whatever
// its spec says.
func (a *Attempt) gpu(context.Context) error {
	devices := strings.Join(a.Task.Grant.GPUs, ",")
	a.env = set(a.env, "CUDA_VISIBLE_DEVICES", devices)
	if devices == "" {
		devices = "void" // what NVIDIA's container runtime calls none
	}
	a.env = set(a.env, "NVIDIA_VISIBLE_DEVICES", devices)
	return nil
}
