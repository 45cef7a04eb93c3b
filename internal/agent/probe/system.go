package probe

import (
	"context"
	"runtime"

	gopshost "github.com/shirou/gopsutil/v4/host"
)

// System describes the operating system.
type System struct {
	OS       string `json:"os"`   // such as linux
	Arch     string `json:"arch"` // such as amd64
	Platform string `json:"platform,omitempty"`
	Kernel   string `json:"kernel,omitempty"`
	Virtual  string `json:"virtual,omitempty"` // the hypervisor or container in which it runs, such as kvm, docker or wsl
}

func system(ctx context.Context) System {
	s := System{OS: runtime.GOOS, Arch: runtime.GOARCH}
	if name, _, version, err := gopshost.PlatformInformationWithContext(ctx); err == nil && name != "" {
		s.Platform = name
		if version != "" {
			s.Platform += " " + version
		}
	}
	if kernel, err := gopshost.KernelVersionWithContext(ctx); err == nil {
		s.Kernel = kernel
	}
	if by, role, err := gopshost.VirtualizationWithContext(ctx); err == nil && role == "guest" {
		s.Virtual = by
	}
	return s
}
