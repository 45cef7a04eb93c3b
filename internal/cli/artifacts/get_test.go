package artifacts

import (
	"testing"

	"github.com/muster-dev/muster/internal/client"
)

// Names that a system cannot hold as they are, or does not distinguish, are refused before anything is written.
func TestNamesOfSystems(t *testing.T) {
	for _, c := range []struct {
		name, system string
		ok           bool
	}{
		{"a/b.txt", "linux", true}, {"a/b.txt", windows, true}, {"trailing.", "linux", true}, {"trailing.", windows, false}, {"a /b", windows, false},
		{"...", windows, false}, {"../a", "linux", false}, {`a\b`, "linux", false}, {"\x1b[2J", "linux", false}, {"c:a", "linux", false},
	} {
		if err := checkName(c.name, c.system); (err == nil) != c.ok {
			t.Errorf("%q on %s: %v", c.name, c.system, err)
		}
	}
	for _, c := range []struct {
		names  []string
		system string
		at     int // of the conflict, -1 without one
	}{
		{[]string{"a", "b", "c/a"}, "linux", -1}, {[]string{"a", "A"}, "linux", -1}, {[]string{"a", "A"}, "darwin", 1}, {[]string{"a", "b", "A/b"}, windows, 2},
		{[]string{"a", "a"}, "linux", 1}, {[]string{"x", "a/b/c", "a/b"}, "linux", 2}, {nil, "linux", -1},
	} {
		var targets []client.Target
		for _, name := range c.names {
			targets = append(targets, client.Target{Name: name})
		}
		if i, ok := conflict(targets, c.system); ok != (c.at >= 0) || ok && i != c.at {
			t.Errorf("%q on %s: %d, %v", c.names, c.system, i, ok)
		}
	}
}
