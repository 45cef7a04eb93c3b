//go:build !linux

// Package view creates mount namespaces in which tasks see less of the machine than the worker. They exist on Linux only.
package view

import (
	"errors"

	"github.com/muster-dev/muster/internal/agent/run"
)

// Ensure fails.
func Ensure(*run.View) error { return errors.ErrUnsupported }

// TryIPC fails.
func TryIPC(*run.View) error { return errors.ErrUnsupported }

// Task is what a running task has entered.
type Task struct{}

// OpenTask fails.
func OpenTask(int) (*Task, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*Task) Close() {}

// NoUserNamespaces reports false.
func NoUserNamespaces(*run.View) bool { return false }
