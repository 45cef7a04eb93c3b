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

// Plan says how a container is to be. What is left out is as the image says, or as the
// engine does by default.
type Plan struct {
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

	Keep     []string // capabilities; all others are dropped
	LogSize  string   // of one of its files, such as 16m
	LogFiles int

	Memory int64 // bytes, with swap; 0 for no limit, as below
	Swap   bool  // what is swapped out does not count as Memory
	CPUs   float64
	PIDs   int64
	Parent string // control group to be in; "" for the engine's own

	Network string // bridge, none or host
	Devices []string
	Groups  []string // ids that its user has, too
	GPUs    []string // as Driver names them
	Driver  string   // for GPUs: nvidia, or cdi
}

// Mount is a file or folder of the engine's machine that a container has.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Create makes a container, not started, and returns its EventID. It is ErrMissing if the image is not there,
// and ErrTaken if the name is taken. Names of GPUs by cdi want the API of Docker 25, or Podman.
func (e *Engine) Create(ctx context.Context, p *Plan) (string, error) {
	doing := "the container " + p.Name + " cannot be made"
	opts := client.ContainerCreateOptions{Name: p.Name, Config: p.config(), HostConfig: p.host()}
	made, err := e.api.Load().ContainerCreate(ctx, opts)
	if err != nil && p.Init && ctx.Err() == nil && lacksInit(err) {
		opts.HostConfig.Init = nil
		made, err = e.api.Load().ContainerCreate(ctx, opts)
	}
	return made.ID, e.failed(ctx, doing, err)
}

// lacksInit says whether an engine has no program for Plan.Init, which Podman tells only when it is
// to make use of it.
func lacksInit(err error) bool {
	return strings.Contains(err.Error(), "init") && (strings.Contains(err.Error(), "catatonit") || strings.Contains(err.Error(), "no such file"))
}

func (p *Plan) config() *container.Config {
	c := &container.Config{
		Image: p.Image, Labels: p.Labels, Entrypoint: p.Entrypoint, Cmd: p.Command, Env: p.Env, WorkingDir: p.Workdir, User: p.User,
		AttachStdout: true, AttachStderr: true,
	}
	if p.Entrypoint != nil && len(p.Entrypoint) == 0 {
		c.Entrypoint = []string{""} // which is how none is said
	}
	return c
}

// swap is how much memory it has with what is swapped out.
func (p *Plan) swap() int64 {
	if p.Swap && p.Memory > 0 {
		return -1 // what the machine has
	}
	return p.Memory
}

func (p *Plan) host() *container.HostConfig {
	h := &container.HostConfig{
		LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": p.LogSize, "max-file": strconv.Itoa(p.LogFiles)}},
		NetworkMode:   container.NetworkMode(p.Network),
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		CapDrop:       []string{"ALL"}, CapAdd: p.Keep,
		SecurityOpt:    []string{"no-new-privileges"},
		IpcMode:        container.IPCModePrivate,
		ReadonlyRootfs: p.ReadOnly, Tmpfs: p.Tmpfs, ShmSize: p.ShmSize, GroupAdd: p.Groups,
		Resources: container.Resources{Memory: p.Memory, MemorySwap: p.swap(), NanoCPUs: int64(p.CPUs * 1e9), CgroupParent: p.Parent},
	}
	if p.PIDs > 0 {
		h.PidsLimit = &p.PIDs
	}
	if p.Init {
		h.Init = &p.Init
	}
	for _, m := range p.Mounts {
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	for _, path := range p.Devices {
		h.Devices = append(h.Devices, container.DeviceMapping{PathOnHost: path, PathInContainer: path, CgroupPermissions: "rw"})
	}
	if len(p.GPUs) > 0 {
		want := container.DeviceRequest{Driver: p.Driver, DeviceIDs: p.GPUs}
		if p.Driver != "cdi" {
			want.Capabilities = [][]string{{"gpu"}}
		}
		h.DeviceRequests = []container.DeviceRequest{want}
	}
	return h
}

// Listed is a container in a list.
type Listed struct {
	ID     string
	Name   string
	Image  string // its EventID
	Labels map[string]string
	State  string // created, running, paused, exited, …
}

// Containers lists those that have a label of this value, in any state; all for "".
func (e *Engine) Containers(ctx context.Context, label, value string) ([]Listed, error) {
	opts := client.ContainerListOptions{All: true}
	if label != "" {
		opts.Filters = client.Filters{}.Add("label", label+"="+value)
	}
	said, err := e.api.Load().ContainerList(ctx, opts)
	if err != nil {
		return nil, e.failed(ctx, "the containers cannot be listed", err)
	}
	list := make([]Listed, len(said.Items))
	for i := range said.Items {
		c := &said.Items[i]
		list[i] = Listed{ID: c.ID, Image: c.ImageID, Labels: c.Labels, State: string(c.State)}
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
		switch err := e.failed(ctx, doing, err); {
		case err == nil, errors.Is(err, ErrMissing):
			return nil
		case !errors.Is(err, ErrTaken): // ErrTaken: another one is removing it
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return e.failed(ctx, doing, fmt.Errorf("it is still being removed: %w", ctx.Err()))
		}
	}
}
