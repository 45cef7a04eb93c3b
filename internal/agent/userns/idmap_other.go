//go:build !linux

package userns

import "errors"

// Engine is for Linux only: elsewhere engines run in a virtual machine.
type Engine struct{ root string }

// FindEngine fails.
func FindEngine(string) (*Engine, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*Engine) Close() error { return nil }

func supported(string, *Engine, bool) error { return errors.ErrUnsupported }
