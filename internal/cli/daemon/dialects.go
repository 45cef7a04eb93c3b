package daemon

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/serverd"
)

// parseDialects reads what --dialect says, or MUSTER_DIALECT, which has spaces between several, and adds it to what is there.
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
			return nil, muster.Errorf(muster.Invalid, "%s is there twice", cfg.Name)
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

// allDialects is every system, for --dialects.
const allDialects = "all"

// addLocalDialects adds the systems of --dialects that --dialect does not name, reachable from this machine only.
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

// gatewayURLs returns where each gateway is reached, by name.
func gatewayURLs(gateways []serverd.Gateway) map[string]string {
	urls := map[string]string{}
	for _, g := range gateways {
		urls[g.Name] = g.URL
	}
	return urls
}

// describeGateways says where the gateways are.
func describeGateways(gateways []serverd.Gateway) string {
	var text strings.Builder
	for _, g := range gateways {
		fmt.Fprintf(&text, "  %-10s   %s%s\n", g.Title, g.URL, describeGatewayKey(g))
	}
	return text.String()
}

// describeGatewayKey says how a gateway takes a key, and that other machines need none.
func describeGatewayKey(g serverd.Gateway) string {
	switch {
	case !g.KeyRequired && g.Reachable:
		return "   (open: any program that reaches it can join and submit; add ,key=required)"
	case !g.KeyRequired:
		return ""
	}
	return "   (needs a key: as its programs send one, or in the URL as " + strings.TrimSuffix(g.URL, "/") + "/k/KEY)"
}
