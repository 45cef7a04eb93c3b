//go:build !linux

package shim

import (
	"errors"
	"net"
	"os"
)

// outlives says whether there are shims that outlive the worker on this system.
const outlives = false

func (c *Client) bear(h *home) (net.Conn, func(), error) { return c.inside(h) }

func (h *home) dial() (net.Conn, error) { return nil, errors.ErrUnsupported }

// nobody reports whether an error of dial says that no shim is there: here there is none.
func nobody(err error) bool { return err != nil }

// Main is the program of a shim, which this system does not have.
func Main([]string) error { return errors.ErrUnsupported }

// placeOf is only known where there are shims.
func placeOf(string) (place, error) { return place{}, errors.ErrUnsupported }

func (h *home) namesAnother(int) bool { return false }

func self(path string) string { return path }

func newPipe() (r, w *os.File, err error) { return os.Pipe() }
