//go:build !linux

package shim

import (
	"errors"
	"net"
	"os"
)

// outlives says whether there are shims that outlive the worker on this system.
const outlives = false

func (c *Client) spawn(d *stateDir) (net.Conn, func(), error) { return c.startInProcess(d) }

func (d *stateDir) dial() (net.Conn, error) { return nil, errors.ErrUnsupported }

// noListener reports whether an error of dial says that no shim is there: here there is none.
func noListener(err error) bool { return err != nil }

// Main is the program of a shim, which this system does not have.
func Main([]string) error { return errors.ErrUnsupported }

// fileIDOf is only known where there are shims.
func fileIDOf(string) (fileID, error) { return fileID{}, errors.ErrUnsupported }

func (d *stateDir) startedElsewhere(int) bool { return false }

func selfPath(path string) string { return path }

func newPipe() (r, w *os.File, err error) { return os.Pipe() }
