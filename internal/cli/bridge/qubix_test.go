package bridge

import (
	"context"
	"slices"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/workerd"
)

// parseQubix reads arguments as the command does.
func parseQubix(t *testing.T, dropIn bool, args ...string) (*qubixOptions, error) {
	t.Helper()
	o, ok := newQubix().(*qubixOptions)
	if !ok {
		t.Fatal("it is another type")
	}
	c := &cli.Command{Name: "qubix", Flags: o.Flags(dropIn), Action: func(context.Context, *cli.Command) error { return nil }, Writer: t.Output(), ErrWriter: t.Output()}
	return o, c.Run(t.Context(), append([]string{"qubix"}, args...))
}

// The options are those of both guides, with their defaults, and --address. QUBIX's workers read no variables.
func TestQubixOptions(t *testing.T) {
	for _, name := range []string{"BACKEND", "PRICE", "NAME", "LOCATION", "ADDRESS"} {
		t.Setenv("MUSTER_"+name, "1")
		t.Setenv("QUBIX_"+name, "1")
		t.Setenv(name, "1")
	}
	for _, dropIn := range []bool{true, false} {
		o, err := parseQubix(t, dropIn)
		if err != nil || o.Backend != "http://127.0.0.1:3001" || o.Price != 5 || o.Name != "" || o.Location != "Local Network" || o.Address != "" {
			t.Errorf("the defaults are %+v, %v", o.BridgeConfig, err)
		}
		var names []string
		for _, f := range o.Flags(dropIn) {
			names = append(names, f.Names()...)
		}
		if slices.Sort(names); !slices.Equal(names, []string{"address", "backend", "location", "name", "price"}) {
			t.Errorf("the options are %v", names)
		}
		if len(o.Notes()) != 0 {
			t.Errorf("options without an effect: %v", o.Notes())
		}
	}
	for _, line := range [][]string{ // of the simple worker's guide, and of the enhanced worker's
		{"--backend", "http://localhost:3001", "--price", "2.5", "--name", "My Gaming PC", "--location", "US East (Virginia)"},
		{"--backend=http://localhost:3001", "--price=2.5", "--name=My Gaming PC", "--location=US East (Virginia)"},
	} {
		o, err := parseQubix(t, true, line...)
		if err != nil || o.Backend != "http://localhost:3001" || o.Price != 2.5 || o.Name != "My Gaming PC" || o.Location != "US East (Virginia)" {
			t.Errorf("%v is %+v, %v", line, o.BridgeConfig, err)
		}
		var w workerd.Config
		if err := o.ConfigureWorker(&w); err != nil || w.Name != "My Gaming PC" || w.Price != 2.5 {
			t.Errorf("the worker of the machine is %q at %v: %v", w.Name, w.Price, err)
		}
	}
	for _, wrong := range [][]string{{"--price", "cheap"}, {"--price", "-1"}, {"--price", "NaN"}, {"--nothing"}, {"--token", "x"}} {
		if _, err := parseQubix(t, true, wrong...); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}
