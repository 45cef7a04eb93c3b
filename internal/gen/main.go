// Command gen writes the generated files of the repository, in whose root it runs. With "share DIR" it writes the manual pages and
// completion scripts of packages to DIR instead.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/cli"
	"github.com/muster-dev/muster/internal/gen/jobschema"
	"github.com/muster-dev/muster/internal/gen/seccomp"
	"github.com/muster-dev/muster/internal/obs"
)

type file struct {
	path    string // from the root of the repository
	content func() ([]byte, error)
}

// files are the generated files.
var files = append([]file{
	{"docs/states.md", func() ([]byte, error) { return []byte(statesPage()), nil }},
	{jobschema.Target, jobSchema},
	{"web/openapi.json", openAPI},
	{"docs/api.md", func() ([]byte, error) { return []byte(apiPage()), nil }},
	{securityPath, securityPage},
	{"docs/metrics.md", func() ([]byte, error) { return []byte(obs.Markdown()), nil }},
	{"docs/cli.md", func() ([]byte, error) {
		page, err := cli.Reference()
		return []byte(page), err
	}},
}, filters()...)

// filters are the generated files of package seccomp.
func filters() []file {
	var list []file
	for _, f := range seccomp.Files() {
		list = append(list, file{f.Path, f.Content})
	}
	return list
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "share":
		return writeShare(args[1])
	case len(args) > 0:
		return errors.New("usage: gen [share DIR]")
	}
	for _, f := range files {
		content, err := f.content()
		if err == nil {
			err = os.WriteFile(f.path, content, 0o644) //nolint:gosec // a public document
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func jobSchema() ([]byte, error) {
	page, err := os.ReadFile(jobschema.Source)
	if err != nil {
		return nil, err
	}
	return jobschema.Document(string(page))
}

// openAPI returns the OpenAPI document of the HTTP API, from which the types of the web client are generated.
func openAPI() ([]byte, error) {
	b, err := json.MarshalIndent(api.Document(), "", "  ")
	return append(b, '\n'), err
}
