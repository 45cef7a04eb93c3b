package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/api/schema"
)

// apiPage returns the operations of the API as a Markdown page, a table for each tag.
func apiPage() string {
	paths := api.Document().Paths
	rows := map[string][]string{}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for _, op := range schema.Operations(paths[path]) {
			var query []string
			for _, p := range op.Parameters {
				if p.In == "query" {
					query = append(query, "`"+p.Name+"`")
				}
			}
			row := fmt.Sprintf("| `%s %s` | %s | %s |\n", op.Method, path, strings.ReplaceAll(op.Summary, "|", `\|`), strings.Join(query, " "))
			rows[op.Tags[0]] = append(rows[op.Tags[0]], row)
		}
	}
	var b strings.Builder
	b.WriteString("# HTTP API\n\nGenerated from the API's OpenAPI document, which every server serves at `/api/v1/openapi.json`, with a readable page at `/api/docs`. " +
		"Requests carry `Authorization: Bearer KEY`. Errors are `application/problem+json` with a `code`.\n")
	for _, tag := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "\n## %s\n\n| operation | what it does | query parameters |\n|---|---|---|\n%s", strings.ToUpper(tag[:1])+tag[1:], strings.Join(rows[tag], ""))
	}
	return b.String()
}
