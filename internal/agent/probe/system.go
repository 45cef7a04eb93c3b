package probe

import (
	"context"
	"os"
	"runtime"

	"github.com/shirou/gopsutil/v4/host"
)

// System is what runs the machine.
type System struct {
	OS       string `json:"os"`   // such as linux
	Arch     string `json:"arch"` // such as amd64
	Platform string `json:"platform,omitempty"`
	Kernel   string `json:"kernel,omitempty"`
}

func system(ctx context.Context) System {
	s := System{OS: runtime.GOOS, Arch: runtime.GOARCH}
	if name, _, version, err := host.PlatformInformationWithContext(ctx); err == nil && name != "" {
		s.Platform = name
		if version != "" {
			s.Platform += " " + version
		}
	}
	if kernel, err := host.KernelVersionWithContext(ctx); err == nil {
		s.Kernel = kernel
	}
	return s
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
