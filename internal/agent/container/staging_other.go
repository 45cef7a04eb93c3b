//go:build !linux

package container

import (
	"errors"

	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/userns"
)

var errReplaced = errors.New("it was replaced while the task was prepared")

// staging is only on Linux: on other systems engines run in a virtual machine and bind by path.
type staging struct{}

func newStaging(string) *staging { return &staging{} }

func (*staging) stage(string, []docker.Mount) ([]docker.Mount, error) {
	return nil, errors.ErrUnsupported
}

func (*staging) release(string) {}

func (*staging) mapIDs(string, docker.IDMap) ([]string, error) { return nil, errors.ErrUnsupported }

func (*staging) setEngine(*userns.Engine) {}
