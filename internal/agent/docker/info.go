package docker

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/client"
)

// Info describes an engine.
type Info struct {
	Name          string   // docker or podman
	Version       string   // such as 20.10.24
	API           string   // the newest supported API version, such as 1.41
	OS            string   // of its containers: linux or windows
	Arch          string   // as Go names it
	Kernel        string   // kernel release of its containers
	Rootless      bool     // it runs as an unprivileged user
	Remapped      bool     // one user namespace for all containers: root in them is another user outside
	RemappedTo    int      // that user, if it is Remapped and the engine says so
	CgroupDriver  string   // cgroupfs, systemd or none
	CgroupVersion string   // 1 or 2
	Storage       string   // such as overlay2
	Root          string   // folder of its images and containers
	Runtimes      []string // such as runc, nvidia; sorted
	CDI           []string // folders of its CDI descriptions; nil without CDI
	LiveRestore   bool     // containers keep running while it restarts
	Init          bool     // it supports ContainerSpec.Init
}

// Query returns the properties of the engine at host. Its errors distinguish a socket that does not exist, one that this user may not
// use, and one without an engine (fs.ErrNotExist, fs.ErrPermission, syscall.ECONNREFUSED).
func Query(ctx context.Context, host string) (*Info, error) {
	if socket, ok := strings.CutPrefix(host, "unix://"); ok {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		_ = conn.Close()
	}
	e, err := Open(host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close() }() // only read from
	return e.Info(ctx)
}

// Sockets lists where Docker and Podman listen, in the order in which a worker tries them: on the machine, of the user, and of desktop
// products. home and runtimeDir are the user's folders, "" for none.
func Sockets(home, runtimeDir string) (docker, podman []string) {
	docker, podman = []string{"/var/run/docker.sock"}, []string{"/run/podman/podman.sock"}
	if runtimeDir != "" {
		docker = append(docker, filepath.Join(runtimeDir, "docker.sock"))
		podman = append([]string{filepath.Join(runtimeDir, "podman", "podman.sock")}, podman...)
	}
	if home != "" {
		for _, dir := range []string{".docker/run", ".docker/desktop", ".colima/default", ".orbstack/run", ".rd"} {
			docker = append(docker, filepath.Join(home, filepath.FromSlash(dir), "docker.sock"))
		}
	}
	return docker, podman
}

// IsLocal reports whether the containers of the engine at host appear to be processes of this machine's kernel; those of a desktop engine run in a
// virtual machine.
func (i *Info) IsLocal(host string) bool {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return err == nil && strings.HasPrefix(host, "unix://") && strings.TrimSpace(string(kernel)) == i.Kernel
}

// Ping checks whether the engine answers. If its API version has changed since the last Ping, it negotiates the version again.
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

// Info returns the properties of the engine and negotiates the API version again.
func (e *Engine) Info(ctx context.Context) (*Info, error) {
	doing := "the container engine at " + e.host + " cannot be inspected"
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
		Kernel: info.KernelVersion, CDI: info.CDISpecDirs, LiveRestore: info.LiveRestoreEnabled, Runtimes: slices.Sorted(maps.Keys(info.Runtimes)),
	}
	for _, part := range version.Components {
		switch {
		case strings.HasPrefix(part.Name, "Podman"):
			a.Name, a.Init = "podman", true // not reported; see Create
			if len(a.CDI) == 0 {
				a.CDI = CDIDirs // the default since version 4.1
			}
		case part.Name == "docker-init":
			a.Init = true
		}
	}
	for _, option := range info.SecurityOptions {
		a.Rootless = a.Rootless || strings.HasPrefix(option, "name=rootless")
		a.Remapped = a.Remapped || strings.HasPrefix(option, "name=userns")
	}
	if a.Remapped { // the folder is called UID.GID
		uid, _, _ := strings.Cut(filepath.Base(a.Root), ".")
		a.RemappedTo, _ = strconv.Atoi(uid) // 0 if it is not
	}
	return a, nil
}
