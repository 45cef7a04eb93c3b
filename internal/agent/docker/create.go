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
)

// ContainerSpec says how a container is to be. What is left out is as the image says, or as the
// engine does by default.
type ContainerSpec struct {
	Name       string
	Image      string // name or EventID
	Labels     map[string]string
	Entrypoint []string // nil for the image's own; empty for none
	Command    []string // nil for the image's own, if the entrypoint is so, too
	Env        []string // over the image's
	Workdir    string
	User       string
	Init       bool // a program that reaps and passes on signals stands before the container's own

	Mounts   []Mount
	ShmSize  int64             // bytes; 0 for the engine's default
	Tmpfs    map[string]string // options by folder
	ReadOnly bool              // of the image's files

	CapAdd   []string // capabilities; all others are dropped
	LogSize  string   // of one of its files, such as 16m
	LogFiles int

	Memory        int64 // bytes, with swap; 0 for no limit, as below
	UnlimitedSwap bool  // what is swapped out does not count as Memory
	CPUs          float64
	PIDs          int64
	CgroupParent  string // control group to be in; "" for the engine's own

	Network   string // bridge, none or host
	Devices   []string
	GroupAdd  []string // ids that its user has, too
	GPUs      []string // as Driver names them
	GPUDriver string   // for GPUs: nvidia, or cdi
}

// Mount is a file or folder of the engine's machine that a container has.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Create makes a container, not started, and returns its EventID. It is ErrNotFound if the image is not there,
// and ErrConflict if the name is taken. Names of GPUs by cdi want the API of Docker 25, or Podman.
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

// lacksInit says whether an engine has no program for Plan.Init, which Podman tells only when it is
// to make use of it.
func lacksInit(err error) bool {
	return strings.Contains(err.Error(), "init") && (strings.Contains(err.Error(), "catatonit") || strings.Contains(err.Error(), "no such file"))
}

func (s *ContainerSpec) config() *container.Config {
	c := &container.Config{
		Image: s.Image, Labels: s.Labels, Entrypoint: s.Entrypoint, Cmd: s.Command, Env: s.Env, WorkingDir: s.Workdir, User: s.User,
		AttachStdout: true, AttachStderr: true,
	}
	if s.Entrypoint != nil && len(s.Entrypoint) == 0 {
		c.Entrypoint = []string{""} // which is how none is said
	}
	return c
}

// memorySwap is how much memory it has with what is swapped out.
func (s *ContainerSpec) memorySwap() int64 {
	if s.UnlimitedSwap && s.Memory > 0 {
		return -1 // what the machine has
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
	Image  string // its EventID
	Labels map[string]string
	State  string // created, running, paused, exited, …
}

// Containers lists those that have a label of this value, in any state; all for "".
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

// Remove kills a container if it runs, and removes it with its volumes that have no name. It returns
// when it is gone; one that is not there is no error.
func (e *Engine) Remove(ctx context.Context, id string) error {
	doing := "the container " + id + " cannot be removed"
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		_, err := e.api.Load().ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch err := e.wrapError(ctx, doing, err); {
		case err == nil, errors.Is(err, ErrNotFound):
			return nil
		case !errors.Is(err, ErrConflict): // ErrConflict: another one is removing it
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return e.wrapError(ctx, doing, fmt.Errorf("it is still being removed: %w", ctx.Err()))
		}
	}
}
