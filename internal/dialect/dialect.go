package dialect

import (
	"context"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// System is one system that Muster speaks to as its server would.
type System struct {
	Name        string   // as --dialect takes it, such as "qubix"
	Title       string   // as people write it, such as "QUBIX"
	Address     string   // where its own server listens by default, such as ":3001"
	Options     []Option // of its own, beside those that all systems have
	RequiresKey bool     // its workers and clients have keys in any case, without key=required, too
	// DemoOptions are options with which it is tried on one machine, by muster up --dialects: what else it would need from outside.
	DemoOptions map[string]string
	// New opens the gateway's port. Nothing is served before Run.
	New func(ctx context.Context, deps Deps) (Gateway, error)
}

// Option is one that only some systems have.
type Option struct {
	Name   string
	Usage  string // one line
	Secret bool   // never logged or shown
}

// Gateway serves workers and clients of one system.
type Gateway interface {
	// Run serves until ctx ends, and returns when everything that it started has stopped. With a context that has ended it only gives back
	// what New took.
	Run(ctx context.Context) error
	// URL is what people enter into programs of the system on this machine.
	URL() string
	// Ready returns nil, or why the gateway cannot work now. It answers at once.
	Ready() error
}

// Config is what the operator says of one gateway.
type Config struct {
	Name        string
	Address     string            // host:port; port 0 picks a free one
	KeyRequired bool              // every request needs a Muster key; else the gateway is open to all that reach it
	Project     string            // whose tasks it gives out, and for which it submits; "" means muster.DefaultProject where it is open
	Kinds       []string          // of the tasks that it gives out; nil means all that its workers take
	Price       float64           // per hour, of workers that name none
	Options     map[string]string // of the system
}

// Projects lists whose tasks the gateway's workers take; nil means all. An open gateway has one project, since anyone may take
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

// The most of what the text of a Config may have.
const (
	maxOptions = 64
	maxPrice   = 1e6
)

// Common lists the options that every system has.
var commonOptions = []Option{ //nolint:gochecknoglobals // a constant table
	{Name: "key", Usage: "required: each request needs a Muster key"},
	{Name: "project", Usage: "the project whose tasks it gives out and for which it submits"},
	{Name: "kinds", Usage: "the kinds of tasks that it gives out, with + between them"},
	{Name: "price", Usage: "per hour, of workers that name none"},
}

// Parse reads NAME[=ADDRESS][,OPTION=VALUE…], such as "mloc=:8000,key=required,redis=redis://127.0.0.1". A value
// has no comma. Its errors are Invalid and say what is possible.
func Parse(text string, systems []System) (Config, error) {
	head, rest, hasOptions := strings.Cut(text, ",")
	name, address, _ := strings.Cut(head, "=")
	i := slices.IndexFunc(systems, func(s System) bool { return s.Name == name })
	if i < 0 {
		return Config{}, muster.Errorf(muster.Invalid, "there is no system %q: write one of %s", name, names(systems))
	}
	system := &systems[i]
	c := Config{Name: name, Address: address, Options: map[string]string{}}
	if c.Address == "" {
		c.Address = system.Address
	}
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return Config{}, muster.Errorf(muster.Invalid, "%s: %q is no address: write such as %s=%s", name, c.Address, name, system.Address)
	}
	if !hasOptions {
		return c, nil
	}
	parts := strings.Split(rest, ",")
	if len(parts) > maxOptions {
		return Config{}, muster.Errorf(muster.Invalid, "%s: %d options are too many", name, len(parts))
	}
	seen := map[string]bool{}
	for _, part := range parts {
		option, value, ok := strings.Cut(part, "=")
		if !ok || value == "" {
			return Config{}, muster.Errorf(muster.Invalid, "%s: %q is no option: write OPTION=VALUE, with one of %s", name, part, options(system))
		}
		if seen[option] {
			return Config{}, muster.Errorf(muster.Invalid, "%s: %s is there twice", name, option)
		}
		seen[option] = true
		if err := c.set(system, option, value); err != nil {
			return Config{}, muster.Errorf(muster.Invalid, "%s: %w", name, err)
		}
	}
	return c, nil
}

func (c *Config) set(system *System, option, value string) error {
	switch option {
	case "key":
		if value != "required" {
			return muster.Errorf(muster.Invalid, "key=%s: only key=required is possible", value)
		}
		c.KeyRequired = true
	case "project":
		if len(value) > muster.MaxNameSize {
			return muster.Errorf(muster.Invalid, "project: the name has %d bytes: the most is %d", len(value), muster.MaxNameSize)
		}
		c.Project = value
	case "kinds":
		c.Kinds = strings.Split(value, "+")
		if slices.Contains(c.Kinds, "") {
			return muster.Errorf(muster.Invalid, "kinds=%s: write kinds with + between them", value)
		}
	case "price":
		price, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(price) || price < 0 || price > maxPrice {
			return muster.Errorf(muster.Invalid, "price=%s: write an amount per hour such as 0.5", value)
		}
		c.Price = price
	default:
		if !slices.ContainsFunc(system.Options, func(o Option) bool { return o.Name == option }) {
			return muster.Errorf(muster.Invalid, "there is no option %q: it has %s", option, options(system))
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

// Deps is what a gateway is made of.
type Deps struct {
	Config  Config
	Server  Server
	Dir     string // its own folder, which is there, with mode 0700
	Version string // of this program
	Log     *slog.Logger
}
