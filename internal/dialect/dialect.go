package dialect

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/browserguard"
)

// System is a foreign system whose server Muster replaces.
type System struct {
	Name        string            // for --dialect, such as "qubix"
	Title       string            // for people, such as "QUBIX"
	Address     string            // default address of the system's own server, such as ":3001"
	Options     []Option          // beside those of CommonOptions
	RequiresKey bool              // its workers and clients always have keys, also without key=required
	DemoOptions map[string]string // for muster up --dialects: they replace external services
	// New opens the gateway's port. It serves nothing before Run.
	New func(ctx context.Context, deps Deps) (Gateway, error)
}

// Option is an option of a gateway.
type Option struct {
	Name   string
	Usage  string // one line
	Secret bool   // never logged or shown
}

// Gateway serves workers and clients of one system.
type Gateway interface {
	// Run serves until ctx ends, and returns when everything that it started has stopped. If ctx has ended before, it only releases
	// what New opened.
	Run(ctx context.Context) error
	// URL is the server's address for programs of the system on this machine.
	URL() string
	// Ready returns nil, or why the gateway cannot work now. It does not block.
	Ready() error
}

// DatabaseOwner is implemented by gateways with databases that change in place: a copy of their files would not be consistent.
type DatabaseOwner interface {
	// Databases returns the open databases. It may be called while the gateway runs.
	Databases() []*bbolt.DB
}

// Config configures one gateway.
type Config struct {
	Name        string
	Address     string            // host:port; port 0 picks a free one
	KeyRequired bool              // each request needs a Muster key; otherwise the gateway is open to everyone who reaches it
	TLS         bool              // the port has TLS, with the server's certificate
	Project     string            // of the tasks that it assigns and submits; "" means muster.DefaultProject for an open gateway
	Kinds       []string          // of the tasks that it assigns; nil means all that its workers accept
	Price       float64           // per hour, of workers without a price
	Options     map[string]string // of the system
}

// Projects lists the projects whose tasks the gateway's workers run; nil means all. An open gateway has one project, since anyone can run
// its tasks.
func (c *Config) Projects() []string {
	switch {
	case c.Project != "":
		return []string{c.Project}
	case c.KeyRequired:
		return nil
	default:
		return []string{muster.DefaultProject}
	}
}

const (
	maxOptions = 64
	maxPrice   = 1e6
)

var commonOptions = []Option{ //nolint:gochecknoglobals // a constant table
	{Name: "key", Usage: "required: require a Muster key for each request"},
	{Name: "tls", Usage: "on: serve with TLS, with the server's certificate"},
	{Name: "project", Usage: "project of the tasks that the gateway assigns and submits"},
	{Name: "kinds", Usage: "kinds of tasks to assign, separated by +"},
	{Name: "price", Usage: "price per hour of workers that do not name one"},
}

// Parse reads NAME[=ADDRESS][,OPTION=VALUE…], such as "mloc=:8000,key=required,redis=redis://127.0.0.1". A value
// has no comma. Its errors are Invalid.
func Parse(text string, systems []System) (Config, error) {
	head, rest, hasOptions := strings.Cut(text, ",")
	name, address, _ := strings.Cut(head, "=")
	i := slices.IndexFunc(systems, func(s System) bool { return s.Name == name })
	if i < 0 {
		return Config{}, muster.Errorf(muster.Invalid, "unknown system %q: use one of %s", name, names(systems))
	}
	system := &systems[i]
	c := Config{Name: name, Address: cmp.Or(address, system.Address), Options: map[string]string{}}
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return Config{}, muster.Errorf(muster.Invalid, "%s: invalid address %q: use HOST:PORT, such as %s=%s", name, c.Address, name, system.Address)
	}
	if !hasOptions {
		return c, nil
	}
	parts := strings.Split(rest, ",")
	if len(parts) > maxOptions {
		return Config{}, muster.Errorf(muster.Invalid, "%s: too many options (%d)", name, len(parts))
	}
	seen := map[string]bool{}
	for _, part := range parts {
		option, value, ok := strings.Cut(part, "=")
		if !ok || value == "" {
			return Config{}, muster.Errorf(muster.Invalid, "%s: invalid option %q: use OPTION=VALUE with one of %s", name, part, options(system))
		}
		if seen[option] {
			return Config{}, muster.Errorf(muster.Invalid, "%s: duplicate option %s", name, option)
		}
		seen[option] = true
		if err := c.set(system, option, value); err != nil {
			return Config{}, muster.Errorf(muster.Invalid, "%s: %w", name, err)
		}
	}
	return c, nil
}

// CommonOptions lists the options that every system has.
func CommonOptions() []Option { return slices.Clone(commonOptions) }

func (c *Config) set(system *System, option, value string) error {
	switch option {
	case "key":
		if value != "required" {
			return muster.Errorf(muster.Invalid, "key=%s: the only value is required", value)
		}
		c.KeyRequired = true
	case "tls":
		if value != "on" {
			return muster.Errorf(muster.Invalid, "tls=%s: the only value is on", value)
		}
		c.TLS = true
	case "project":
		if len(value) > muster.MaxNameSize {
			return muster.Errorf(muster.Invalid, "project: the name has %d bytes, more than %d", len(value), muster.MaxNameSize)
		}
		c.Project = value
	case "kinds":
		c.Kinds = strings.Split(value, "+")
		if slices.Contains(c.Kinds, "") {
			return muster.Errorf(muster.Invalid, "kinds=%s: separate kinds by +", value)
		}
	case "price":
		price, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(price) || price < 0 || price > maxPrice {
			return muster.Errorf(muster.Invalid, "price=%s: use an amount per hour, such as 0.5", value)
		}
		c.Price = price
	default:
		if !slices.ContainsFunc(system.Options, func(o Option) bool { return o.Name == option }) {
			return muster.Errorf(muster.Invalid, "unknown option %q: use one of %s", option, options(system))
		}
		c.Options[option] = value
	}
	return nil
}

func names(systems []System) string {
	list := make([]string, len(systems))
	for i := range systems {
		list[i] = systems[i].Name
	}
	return strings.Join(list, ", ")
}

func options(system *System) string {
	var list []string
	for _, o := range append(slices.Clone(commonOptions), system.Options...) {
		list = append(list, o.Name)
	}
	return strings.Join(list, ", ")
}

// Deps is what System.New gets.
type Deps struct {
	Config  Config
	Server  Server
	Dir     string             // an existing directory of the gateway alone, with mode 0700
	Version string             // of this program
	Hosts   browserguard.Hosts // by which browsers reach a gateway without keys
	TLS     *tls.Config        // of the port; nil without TLS
	Log     *slog.Logger
	// Denied is called for each request that the gateway denies, with the IP address that it comes from. It may be nil.
	Denied func(address string, status int)
}
