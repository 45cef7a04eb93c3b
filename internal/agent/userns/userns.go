// Package userns says which user namespaces the containers of an engine have, and maps mounts into them.
//
// In a user namespace root is an ordinary user of the machine: what a container's root gets hold of outside its mounts it may not change, and a way out of
// the container is none into the machine. Files of mounts belong to ids of the machine, which the namespace does not have; an idmapped mount
// (mount_setattr(2)) shows them as if they belonged to the same ids in the namespace: id 0 on the disk is root in the container, in both directions. So
// nothing is copied or chowned, and files that a container leaves have the same owners as without a user namespace.
//
//	Describe   which namespaces do containers have: one each, the engine's, or none, and why
//	FindEngine the engine's process, in whose mount namespace the mounts have to be
//	Open       a namespace with a map of ids, for mounts
//	Namespace.Clone  a detached copy of a mount, mapped
package userns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/internal/agent/docker"
)

// Mode is which user namespaces the containers of an engine have.
type Mode string

// The modes.
const (
	Own    Mode = "container" // each its own, with ids of the machine that no other container has
	Shared Mode = "engine"    // the engine's: it is rootless, or remaps the users of all containers alike
	None   Mode = "none"      // root in a container is root of the machine
)

// Size is how many users and groups a namespace of a container has: 16 bits, as many as images may count on.
const Size = 1 << 16

// Description describes the user namespaces of an engine's containers.
type Description struct {
	Mode  Mode
	Why   string // containers have no namespace of their own, as a sentence that says what to do; "" for Own
	Mount bool   // mounts can be mapped: always for Own
}

// Describe says which user namespaces the engine at host gives to containers of a worker with this data directory. Only a worker of root has mounts mapped. It takes
// milliseconds.
func Describe(ctx context.Context, host string, about *docker.Info, data string) Description {
	for data != filepath.Dir(data) && !exists(data) {
		data = filepath.Dir(data) // where it would be
	}
	var e *Engine
	noEngine := errNotRoot
	if os.Geteuid() == 0 && about.IsLocal(host) {
		if e, noEngine = FindEngine(ctx, host); noEngine == nil {
			defer func() { _ = e.Close() }()
		}
	}
	switch {
	case about.Rootless:
		return Description{Mode: Shared, Why: "the engine is rootless: root in a container is the engine's user"}
	case about.Remapped:
		mount := noEngine == nil && about.RemappedTo > 0 && supported(data, e, false) == nil
		return Description{Mode: Shared, Why: fmt.Sprintf("the engine remaps users: root in all containers is user %d, without privileges", about.RemappedTo), Mount: mount}
	case about.Name != "podman":
		return Description{Mode: None, Why: `Docker has user namespaces for all containers or none: set "userns-remap": "default" in /etc/docker/daemon.json, which hides its images and containers of before, or use Podman`}
	}
	err := noEngine
	if err == nil {
		err = enoughIDs(e.root)
	}
	if err == nil {
		err = supported(data, e, about.Storage == "overlay")
	}
	if err != nil {
		return Description{Mode: None, Why: err.Error()}
	}
	return Description{Mode: Own, Mount: true}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

var errNotRoot = errors.New("the worker does not run as root on the engine's machine: use a rootless engine of its user")

// enoughIDs returns why Podman has no subordinate ids for containers, nil if there are enough for one. root is the path of the root folder that it has.
func enoughIDs(root string) error {
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		b, err := os.ReadFile(filepath.Join(root, file))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot read %s: %w", file, err)
		}
		if n := subordinateIDs(string(b)); n < Size {
			return fmt.Errorf("the user containers has %d ids in %s, and each container needs %d: add the line containers:2147483648:2147418112 to /etc/subuid and /etc/subgid, and restart Podman and the worker", n, file, Size)
		}
	}
	return nil
}

// subordinateIDs returns the number of subordinate ids of the user "containers", from which Podman takes the ids of containers: see subuid(5).
func subordinateIDs(text string) (sum int) {
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 || fields[0] != "containers" {
			continue
		}
		if n, err := strconv.Atoi(fields[2]); err == nil && n > 0 {
			sum += n
		}
	}
	return sum
}
