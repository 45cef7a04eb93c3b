//go:build !linux

package shim

import (
	"errors"
	"net"
	"os"
)

// outlives is whether shims outlive the worker on this system.
const outlives = false

func (c *Client) spawn(d *stateDir) (net.Conn, func(), error) { return c.startInProcess(d) }

func (d *stateDir) dial() (net.Conn, error) { return nil, errors.ErrUnsupported }

// noListener reports whether an error of dial means that no shim is running.
func noListener(err error) bool { return err != nil }

// Main is the program of a shim, which this system does not support.
func Main([]string) error { return errors.ErrUnsupported }

// fileIDOf is only needed where shims outlive the worker.
func fileIDOf(string) (fileID, error) { return fileID{}, errors.ErrUnsupported }

func selfPath(path string) string { return path }

func newPipe() (r, w *os.File, err error) { return os.Pipe() }
