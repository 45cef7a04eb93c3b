package gate

import (
	"net"
	"sync"
)

// door lets so many in at a time; the others wait in the kernel's queue.
type door struct {
	net.Listener

	seats chan struct{}
	shut  <-chan struct{}
	full  func() // is called when somebody has to wait
}

func newDoor(l net.Listener, shut <-chan struct{}, full func()) *door {
	return &door{Listener: l, seats: make(chan struct{}, maxVisitors), shut: shut, full: full}
}

// Accept waits for a visitor, and for a seat.
func (d *door) Accept() (net.Conn, error) {
	c, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case d.seats <- struct{}{}:
	default:
		d.full()
		select {
		case d.seats <- struct{}{}:
		case <-d.shut:
			_ = c.Close()
			return nil, net.ErrClosed
		}
	}
	return &visitor{Conn: c, leave: sync.OnceFunc(func() { <-d.seats })}, nil
}

// visitor is a connection that has a seat until it is closed.
type visitor struct {
	net.Conn

	leave func()
}

// Close closes the connection.
func (v *visitor) Close() error {
	defer v.leave()
	return v.Conn.Close()
}

// CloseWrite ends what is said to the visitor.
func (v *visitor) CloseWrite() error {
	if h, ok := v.Conn.(half); ok {
		return h.CloseWrite()
	}
	return nil
}
