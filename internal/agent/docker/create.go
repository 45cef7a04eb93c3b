package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/muster-dev/muster/internal/backoff"
)

// ContainerSpec describes a container. Empty fields mean the default of the image or of the engine.
type ContainerSpec struct {
	Name       string
	Image      string // name or ID
	Labels     map[string]string
	Entrypoint []string // nil for the image's; empty for none
	Command    []string // nil for the image's, if Entrypoint is nil too
	Env        []string // overrides the image's
	Workdir    string
	User       string
	Init       bool // run an init process that reaps children and forwards signals

	Mounts   []Mount
	ShmSize  int64             // bytes; 0 for the engine's default
	Tmpfs    map[string]string // options by folder
	ReadOnly bool              // the image's files

	CapAdd   []string // capabilities; all others are dropped
	LogSize  string   // of one log file, such as 16m
	LogFiles int

	Memory        int64   // bytes, including swap; 0 for no limit
	UnlimitedSwap bool    // swap does not count as Memory
	CPUs          float64 // 0 for no limit
	PIDs          int64   // 0 for no limit
	CgroupParent  string  // "" for the engine's default

	UserNamespace int // ids of a user namespace of its own, which Podman as root can give it; 0 for the engine's default

	Network   string // bridge, none or host
	Devices   []string
	GroupAdd  []string // additional group IDs of the user
	GPUs      []string // names for GPUDriver
	GPUDriver string   // nvidia or cdi
}

// Mount is a bind mount of a file or folder of the engine's machine.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Create creates a container without starting it, and returns its ID. The error is ErrNotFound if the image is missing, and ErrConflict
// if the name is taken. GPUDriver cdi needs Docker 25 or Podman.
func (e *Engine) Create(ctx context.Context, s *ContainerSpec) (string, error) {
	doing := "the container " + s.Name + " cannot be made"
	opts := client.ContainerCreateOptions{Name: s.Name, Config: s.config(), HostConfig: s.hostConfig()}
	made, err := e.api.Load().ContainerCreate(ctx, opts)
	if err != nil && s.Init && ctx.Err() == nil && lacksInit(err) {
		opts.HostConfig.Init = nil
		made, err = e.api.Load().ContainerCreate(ctx, opts)
	}
	return made.ID, e.wrapError(ctx, doing, err)
}

// lacksInit reports whether err means that the engine has no program for ContainerSpec.Init. Podman reports that only on use.
func lacksInit(err error) bool {
	return strings.Contains(err.Error(), "init") && (strings.Contains(err.Error(), "catatonit") || strings.Contains(err.Error(), "no such file"))
}

func (s *ContainerSpec) config() *container.Config {
	c := &container.Config{
		Image: s.Image, Labels: s.Labels, Entrypoint: s.Entrypoint, Cmd: s.Command, Env: s.Env, WorkingDir: s.Workdir, User: s.User,
		AttachStdout: true, AttachStderr: true,
	}
	if s.Entrypoint != nil && len(s.Entrypoint) == 0 {
		c.Entrypoint = []string{""} // the API's form of none
	}
	return c
}

// memorySwap returns the limit of memory and swap together.
func (s *ContainerSpec) memorySwap() int64 {
	if s.UnlimitedSwap && s.Memory > 0 {
		return -1 // unlimited
	}
	return s.Memory
}

func (s *ContainerSpec) hostConfig() *container.HostConfig {
	h := &container.HostConfig{
		LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": s.LogSize, "max-file": strconv.Itoa(s.LogFiles)}},
		NetworkMode:   container.NetworkMode(s.Network),
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		CapDrop:       []string{"ALL"}, CapAdd: s.CapAdd,
		SecurityOpt:    []string{"no-new-privileges"},
		IpcMode:        container.IPCModePrivate,
		ReadonlyRootfs: s.ReadOnly, Tmpfs: s.Tmpfs, ShmSize: s.ShmSize, GroupAdd: s.GroupAdd,
		Resources: container.Resources{Memory: s.Memory, MemorySwap: s.memorySwap(), NanoCPUs: int64(s.CPUs * 1e9), CgroupParent: s.CgroupParent},
	}
	if s.PIDs > 0 {
		h.PidsLimit = &s.PIDs
	}
	if s.Init {
		h.Init = &s.Init
	}
	if s.UserNamespace > 0 {
		h.UsernsMode = container.UsernsMode("auto:size=" + strconv.Itoa(s.UserNamespace))
	}
	for _, m := range s.Mounts {
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	for _, path := range s.Devices {
		h.Devices = append(h.Devices, container.DeviceMapping{PathOnHost: path, PathInContainer: path, CgroupPermissions: "rw"})
	}
	if len(s.GPUs) > 0 {
		req := container.DeviceRequest{Driver: s.GPUDriver, DeviceIDs: s.GPUs}
		if s.GPUDriver != "cdi" {
			req.Capabilities = [][]string{{"gpu"}}
		}
		h.DeviceRequests = []container.DeviceRequest{req}
	}
	return h
}

// ContainerSummary is a container in a list.
type ContainerSummary struct {
	ID     string
	Name   string
	Image  string // image ID
	Labels map[string]string
	State  string // created, running, paused, exited, …
}

// Containers lists the containers with a label of this value, in any state, or all for label "".
func (e *Engine) Containers(ctx context.Context, label, value string) ([]ContainerSummary, error) {
	opts := client.ContainerListOptions{All: true}
	if label != "" {
		opts.Filters = client.Filters{}.Add("label", label+"="+value)
	}
	res, err := e.api.Load().ContainerList(ctx, opts)
	if err != nil {
		return nil, e.wrapError(ctx, "the containers cannot be listed", err)
	}
	list := make([]ContainerSummary, len(res.Items))
	for i := range res.Items {
		c := &res.Items[i]
		list[i] = ContainerSummary{ID: c.ID, Image: c.ImageID, Labels: c.Labels, State: string(c.State)}
		if len(c.Names) > 0 {
			list[i].Name = strings.TrimPrefix(c.Names[0], "/")
		}
	}
	return list, nil
}

// Remove kills a container if it runs, and removes it with its anonymous volumes. It returns after the removal. A missing container is
// not an error.
func (e *Engine) Remove(ctx context.Context, id string) error {
	doing := "the container " + id + " cannot be removed"
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		_, err := e.api.Load().ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch err := e.wrapError(ctx, doing, err); {
		case err == nil, errors.Is(err, ErrNotFound):
			return nil
		case !errors.Is(err, ErrConflict): // ErrConflict: it is being removed, or unmounted
			return err
		}
		if err := backoff.Sleep(ctx, pause); err != nil {
			return e.wrapError(ctx, doing, fmt.Errorf("it is still being removed: %w", err))
		}
	}
}
