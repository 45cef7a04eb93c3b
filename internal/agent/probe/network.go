package probe

import (
	"net"
	"path"

	"github.com/muster-dev/muster"
)

// Network describes the network interfaces.
type Network struct {
	Bandwidth  muster.Size `json:"bandwidth,omitempty"` // limit of the worker's transfers in bytes per second; absent means none
	Interfaces []Interface `json:"interfaces"`
}

// Interface is one network interface. Those that are visible only inside the machine are left out.
type Interface struct {
	Name      string      `json:"name"`
	Up        bool        `json:"up"`
	Addresses []string    `json:"addresses"`         // with their prefix length, such as 10.0.0.5/24
	Speed     muster.Size `json:"speed,omitempty"`   // of the link in bits per second, if known
	MTU       int         `json:"mtu,omitempty"`     // bytes
	Virtual   bool        `json:"virtual,omitempty"` // without hardware: a bridge, a tunnel or a container's interface
}

const maxInterfaces = 64

func (h *host) network() Network {
	n := Network{Interfaces: []Interface{}}
	all, _ := net.Interfaces() // those that are found
	for i := range all {
		addresses := []string{}
		found, _ := all[i].Addrs()
		for _, a := range found {
			addresses = append(addresses, a.String())
		}
		if one, ok := h.networkInterface(&all[i], addresses); ok && len(n.Interfaces) < maxInterfaces {
			n.Interfaces = append(n.Interfaces, one)
		}
	}
	return n
}

// networkInterface returns an interface. It reports false for loopback and the host's end of a container's interface.
func (h *host) networkInterface(i *net.Interface, addresses []string) (Interface, bool) {
	one := Interface{Name: i.Name, Up: i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0, MTU: i.MTU, Addresses: addresses}
	if h.os == "linux" {
		dir := path.Join("/sys/class/net", i.Name)
		one.Virtual = !h.exists(path.Join(dir, "device"))
		if mbits, ok := h.readInt(path.Join(dir, "speed")); ok && mbits > 0 && mbits < 1<<31 { // else -1, or unreadable: unknown
			one.Speed = muster.Size(mbits) * 1e6
		}
	}
	return one, i.Flags&net.FlagLoopback == 0 && (len(addresses) > 0 || !one.Virtual && h.os == "linux")
}
