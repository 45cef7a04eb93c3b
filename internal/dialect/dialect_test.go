package dialect_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect"
)

func systems() []dialect.System {
	return []dialect.System{
		{Name: "one", Title: "One", Address: ":3001"},
		{Name: "two", Title: "Two", Address: ":8000", Options: []dialect.Option{{Name: "redis", Usage: "where it is", Secret: true}}},
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]dialect.Config{
		"one":                 {Name: "one", Address: ":3001", Options: map[string]string{}},
		"one=127.0.0.1:0":     {Name: "one", Address: "127.0.0.1:0", Options: map[string]string{}},
		"one,key=required":    {Name: "one", Address: ":3001", KeyRequired: true, Options: map[string]string{}},
		"one,tls=on":          {Name: "one", Address: ":3001", TLS: true, Options: map[string]string{}},
		"one=[::1]:9,price=2": {Name: "one", Address: "[::1]:9", Price: 2, Options: map[string]string{}},
		"two=:1,kinds=a+b,project=p,redis=redis://u:p@h:1/0": {
			Name: "two", Address: ":1", Kinds: []string{"a", "b"}, Project: "p", Options: map[string]string{"redis": "redis://u:p@h:1/0"},
		},
	} {
		got, err := dialect.Parse(text, systems())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                    `unknown system ""`,
		"three":               "one, two",
		"one=here":            "invalid address",
		"one,":                "invalid option",
		"one,key":             "invalid option",
		"one,key=":            "invalid option",
		"one,key=yes":         "only value is required",
		"one,tls=off":         "only value is on",
		"one,redis=x":         `unknown option "redis"`,
		"one,price=-1":        "amount per hour",
		"one,price=NaN":       "amount per hour",
		"one,price=1e9":       "amount per hour",
		"one,kinds=a++b":      "separate kinds by +",
		"one,price=1,price=2": "duplicate option",
		"one,project=" + strings.Repeat("x", 100): "more than",
		"one" + strings.Repeat(",price=1", 100):   "too many",
	} {
		if _, err := dialect.Parse(text, systems()); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%.40q): %v, want %q", text, err, want)
		}
	}
}

// An open gateway has one project.
func TestProjects(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config dialect.Config
		want   []string
	}{
		{dialect.Config{}, []string{muster.DefaultProject}},
		{dialect.Config{Project: "p"}, []string{"p"}},
		{dialect.Config{Project: "p", KeyRequired: true}, []string{"p"}},
		{dialect.Config{KeyRequired: true}, nil},
	} {
		if got := c.config.Projects(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v has %q, want %q", c.config, got, c.want)
		}
	}
}

// FuzzParse checks that a valid Config has an address, a known name and a valid price.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"one", "two=:1,redis=x,key=required", "one,price=1e308", "one=,=", "one,kinds=+"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := dialect.Parse(text, systems())
		if err != nil {
			if muster.CodeOf(err) != muster.Invalid {
				t.Fatalf("the error is %v", err)
			}
			return
		}
		if c.Name != "one" && c.Name != "two" || c.Address == "" || !(c.Price >= 0 && c.Price < 1e7) || len(c.Options) > 64 {
			t.Fatalf("it took %+v", c)
		}
	})
}

// A gateway cannot count, tag or approve the workers of other systems.
func TestGatewaysRefuseBoundJoinTokens(t *testing.T) {
	for name, c := range map[string]struct {
		who  client.Whoami
		want bool
	}{
		"a join token":              {client.Whoami{Role: string(auth.Join)}, true},
		"one with uses":             {client.Whoami{Role: string(auth.Join), Limited: true}, false},
		"one of a project":          {client.Whoami{Role: string(auth.Join), Project: "vision"}, false},
		"an administrator":          {client.Whoami{Role: string(auth.Admin)}, true},
		"a project's administrator": {client.Whoami{Role: string(auth.Admin), Project: "vision"}, false},
	} {
		if err := dialect.CanJoinWorkers(c.who); (err == nil) != c.want || err != nil && muster.CodeOf(err) != muster.Forbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
}
