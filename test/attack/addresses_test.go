//go:build unix

package attack

import (
	"net"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/mustertest"
)

// TestWorkerCannotUseAnotherWorkersAddress checks that a worker which claims addresses of other hosts, to which the members of a gang would
// connect, is refused and listed without an address. Workers with an address of their own machine, or in the networks of the administrator,
// are accepted.
func TestWorkerCannotUseAnotherWorkersAddress(t *testing.T) {
	t.Parallel()
	for networks, addresses := range map[string]map[string]bool{
		"": { // the default
			"203.0.113.7": false, "2001:db8::7": false, "169.254.169.254": false, "0.0.0.0": false, "224.0.0.1": false,
			"": true, "127.0.0.1": true, "localhost": true, "10.9.8.7": true,
		},
		"none":           {"10.9.8.7": false, "192.168.0.1": false, "203.0.113.7": false, "": true, ownAddress(t): true},
		"203.0.113.0/24": {"10.9.8.7": false, "203.0.113.7": true},
	} {
		t.Run("networks "+networks, func(t *testing.T) {
			t.Parallel()
			c := mustertest.New(t, t.TempDir())
			if networks != "" {
				c.Server.Kill()
				c.LaunchServer("--worker-addresses", networks)
				c.Await("the server answers", awaitTimeout, func() error {
					_, err := c.Client.Whoami(t.Context())
					return err
				})
			}
			e := newEnvFor(t, c)
			for address, taken := range addresses {
				name := "w" + strings.NewReplacer(".", "-", ":", "-").Replace(address)
				worker := e.join(name)
				conn := e.dial(worker)
				h := hello(worker, name)
				h.Address = address
				e.send(conn, &link.ToServer{Hello: h})
				f := e.receive(conn, "an answer", func(*link.ToWorker) bool { return true })
				switch {
				case taken != (f.Welcome != nil):
					t.Errorf("a worker that names %q as its address: %+v", address, f)
				case !taken && (f.Goodbye == nil || f.Goodbye.Code == ""):
					t.Errorf("a worker that names %q as its address hears %+v", address, f.Goodbye)
				}
				if list, err := e.Client.Workers(t.Context()); err != nil {
					t.Error(err)
				} else if w := workerNamed(list, name); taken && w.Address == "" || !taken && w.Address != "" {
					t.Errorf("%q is listed with %q", name, w.Address)
				}
			}
		})
	}
}

func workerNamed(list []muster.Worker, name string) (w muster.Worker) {
	for _, w := range list {
		if w.Name == name {
			return w
		}
	}
	return w
}

// ownAddress returns an address of this machine other than loopback's, or loopback's if it has no other.
func ownAddress(t *testing.T) string {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	return "127.0.0.1"
}
