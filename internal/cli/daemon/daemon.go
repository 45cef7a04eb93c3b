// Package daemon has the commands that run a server, a worker, or both on this machine, and probe,
// which takes the options of a worker.
package daemon

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/serverd"
)

// ShimCommand is the first argument with which a worker starts this program as its shim (package shim).
// It is handled before the command line is parsed, so that it starts fast.
const ShimCommand = "shim"

type runner struct{ *app.App }

// Commands returns muster up, server, worker and probe. dropIns are subcommands of worker.
func Commands(base *app.App, dropIns ...*cli.Command) []*cli.Command {
	a := &runner{base}
	server := a.serverCommand()
	addDialectHelp(server)
	return []*cli.Command{a.upCommand(), server, a.workerCommand(dropIns), a.probeCommand()}
}

// addDialectHelp adds the systems and options of --dialect to the help text of a command.
func addDialectHelp(cmd *cli.Command) {
	systems := serverd.Dialects()
	all := app.HelpSection{Title: "Systems of --dialect SYSTEM[=ADDRESS][,OPTION=VALUE…]"}
	tables := []app.HelpSection{{Title: "Options of every system", Rows: helpRows(dialect.CommonOptions())}}
	for i := range systems {
		s := &systems[i]
		all.Rows = append(all.Rows, app.HelpRow{Name: s.Name, Usage: s.Title + " (default address: " + s.Address + ")"})
		if len(s.Options) > 0 {
			tables = append(tables, app.HelpSection{Title: "Options of " + s.Name, Rows: helpRows(s.Options)})
		}
	}
	app.AddHelpSections(cmd, append([]app.HelpSection{all}, tables...)...)
}

func helpRows(options []dialect.Option) []app.HelpRow {
	var rows []app.HelpRow
	for _, o := range options {
		rows = append(rows, app.HelpRow{Name: o.Name, Usage: o.Usage})
	}
	return rows
}

// parseDialects adds the dialects of a --dialect option, or of MUSTER_DIALECT, where they are separated by spaces.
func (c *serverConfig) parseDialects(text string) ([]dialect.Config, error) {
	list := c.dialects
	words := strings.Fields(text)
	if len(words) == 0 {
		words = []string{""}
	}
	for _, word := range words {
		cfg, err := dialect.Parse(word, serverd.Dialects())
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, func(d dialect.Config) bool { return d.Name == cfg.Name }) {
			return nil, muster.Errorf(muster.Invalid, "%s is given twice", cfg.Name)
		}
		list = append(slices.Clone(list), cfg)
	}
	return list, nil
}

func formatDialects(list []dialect.Config) string {
	var all []string
	for i := range list {
		all = append(all, list[i].Name+"="+list[i].Address)
	}
	return strings.Join(all, " ")
}

// allDialects is the name of all systems in --dialects.
const allDialects = "all"

// addLocalDialects adds the systems of --dialects that --dialect does not name. They listen on loopback only.
func (c *serverConfig) addLocalDialects(names []string) error {
	systems := serverd.Dialects()
	for _, name := range names {
		if name != allDialects && !slices.ContainsFunc(systems, func(s dialect.System) bool { return s.Name == name }) {
			_, err := dialect.Parse(name, systems)
			return muster.Errorf(muster.Invalid, "--dialects: %w; or all", err)
		}
	}
	for i := range systems {
		s := &systems[i]
		if !slices.Contains(names, allDialects) && !slices.Contains(names, s.Name) ||
			slices.ContainsFunc(c.dialects, func(d dialect.Config) bool { return d.Name == s.Name }) {
			continue
		}
		cfg, err := dialect.Parse(s.Name, systems)
		if err != nil {
			return err
		}
		_, port, err := net.SplitHostPort(s.Address)
		if err != nil {
			return muster.Errorf(muster.Internal, "the address of %s: %w", s.Name, err)
		}
		cfg.Address = net.JoinHostPort("127.0.0.1", port)
		maps.Copy(cfg.Options, s.DemoOptions)
		c.dialects = append(c.dialects, cfg)
	}
	return nil
}

// gatewayURLs returns the URLs of gateways by name.
func gatewayURLs(gateways []serverd.Gateway) map[string]string {
	urls := map[string]string{}
	for _, g := range gateways {
		urls[g.Name] = g.URL
	}
	return urls
}

// describeGateways lists the gateways with their URLs.
func describeGateways(gateways []serverd.Gateway) string {
	var text strings.Builder
	for _, g := range gateways {
		fmt.Fprintf(&text, "  %-10s   %s%s\n", g.Title, g.URL, describeGatewayKey(g))
	}
	return text.String()
}

// describeGatewayKey describes the authentication of a gateway.
func describeGatewayKey(g serverd.Gateway) string {
	switch {
	case !g.KeyRequired && g.Reachable:
		return "   (no authentication: any client can join and submit; add ,key=required)"
	case !g.KeyRequired:
		return ""
	}
	return "   (requires a key, in the client's own way or in the URL: " + strings.TrimSuffix(g.URL, "/") + "/k/KEY)"
}
