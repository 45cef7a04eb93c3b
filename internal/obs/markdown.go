package obs

import (
	"fmt"
	"strings"
)

// Markdown returns docs/metrics.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Metrics

Generated from ` + "`internal/obs`" + ` by ` + "`make gen`" + `; do not edit. How to scrape them, the alerts and the dashboard: [observability.md](observability.md).

Times are in seconds, sizes in bytes, energy in joules. A label never has a job, a task or a path, so the number of series does not grow
with the work. The usual families of the Go runtime (` + "`go_…`" + `) and of the process (` + "`process_…`" + `) exist, too.
`)
	for _, part := range []struct{ by, title string }{
		{"server", "Server"}, {"worker", "Worker"}, {"bridge", "Bridge"}, {"all", "All"},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", part.title)
		for _, f := range Families() {
			if f.Component == part.by {
				labels := ""
				if len(f.Labels) > 0 {
					labels = "`" + strings.Join(f.Labels, "`, `") + "`"
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Type, labels, f.Help)
			}
		}
	}
	return b.String()
}
