package docker

import (
	"context"
	"slices"
	"strings"

	"github.com/moby/moby/client"
)

// Info is what an engine tells of itself.
type Info struct {
	Name          string   // docker or podman
	Version       string   // such as 20.10.24
	API           string   // the newest version of the API that it speaks, such as 1.41
	OS            string   // of its containers: linux or windows
	Arch          string   // as Go names it
	Kernel        string   // release of the kernel that its containers have
	Rootless      bool     // its root is a user without privileges
	Remapped      bool     // root in containers is another user outside of them
	CgroupDriver  string   // cgroupfs, systemd or none
	CgroupVersion string   // 1 or 2
	Storage       string   // such as overlay2
	Root          string   // where its images and containers lie
	Runtimes      []string // such as runc, nvidia; sorted
	CDI           []string // folders of its descriptions of devices; nil where it knows none
	LiveRestore   bool     // containers outlive it
	Init          bool     // it has a program that can stand before a container's own
}

// Ping asks whether the engine is there. If it is another one than at the last Ping, it is spoken to as that one wants it.
func (e *Engine) Ping(ctx context.Context) error {
	res, err := e.api.Load().Ping(ctx, client.PingOptions{})
	if err != nil {
		return e.wrapError(ctx, "the container engine at "+e.host+" does not answer", err)
	}
	if prev := e.apiVersion.Swap(res.APIVersion); prev != nil && prev != res.APIVersion {
		return e.reconnect()
	}
	return nil
}

// Info asks the engine what it is. From then on it is spoken to as it wants it.
func (e *Engine) Info(ctx context.Context) (*Info, error) {
	doing := "the container engine at " + e.host + " does not say what it is"
	if err := e.reconnect(); err != nil {
		return nil, err
	}
	version, err := e.api.Load().ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return nil, e.wrapError(ctx, doing, err)
	}
	res, err := e.api.Load().Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, e.wrapError(ctx, doing, err)
	}
	info := &res.Info
	a := &Info{
		Name: "docker", Version: version.Version, API: version.APIVersion, OS: version.Os, Arch: version.Arch,
		CgroupDriver: info.CgroupDriver, CgroupVersion: info.CgroupVersion, Storage: info.Driver, Root: info.DockerRootDir,
		Kernel: info.KernelVersion, CDI: info.CDISpecDirs, LiveRestore: info.LiveRestoreEnabled,
	}
	for _, part := range version.Components {
		switch {
		case strings.HasPrefix(part.Name, "Podman"):
			a.Name, a.Init = "podman", true // which it does not tell; see Create
			if len(a.CDI) == 0 {
				a.CDI = []string{"/etc/cdi", "/var/run/cdi"} // compiled in, from version 4.1 on
			}
		case part.Name == "docker-init":
			a.Init = true
		}
	}
	for _, option := range info.SecurityOptions {
		a.Rootless = a.Rootless || strings.HasPrefix(option, "name=rootless")
		a.Remapped = a.Remapped || strings.HasPrefix(option, "name=userns")
	}
	for name := range info.Runtimes {
		a.Runtimes = append(a.Runtimes, name)
	}
	slices.Sort(a.Runtimes)
	return a, nil
}
