//go:build !linux

// Package view makes mount namespaces in which tasks see less of the machine than the worker. They are of Linux.
package view

import (
	"errors"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Ensure fails.
func Ensure(*run.View) error { return errors.ErrUnsupported }
