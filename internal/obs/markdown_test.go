package obs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/muster-dev/muster/internal/obs"
)

const root = "../.."

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMarkdownIsCurrent(t *testing.T) {
	if read(t, "docs", "metrics.md") != obs.Markdown() {
		t.Error("docs/metrics.md is stale: run make gen")
	}
}

// TestNames checks names, help texts and labels against the conventions of Prometheus.
func TestNames(t *testing.T) {
	var text strings.Builder
	seen := map[string]bool{}
	for _, f := range obs.Families() {
		if seen[f.Name] {
			t.Errorf("%s is registered twice: muster up has both of a server and a worker", f.Name)
		}
		seen[f.Name] = true
		if !strings.HasPrefix(f.Name, "muster_") || !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s: %q: names begin with muster_, and help is a sentence", f.Name, f.Help)
		}
		for _, label := range f.Labels {
			if slices.Contains([]string{"job", "task", "attempt", "path", "url", "id", "instance", "le", "worker", "project"}, label) {
				t.Errorf("%s: the label %q is not bounded, or Prometheus' own", f.Name, label)
			}
		}
		text.WriteString("# HELP " + f.Name + " " + f.Help + "\n# TYPE " + f.Name + " " + f.Type + "\n")
		if f.Type == "histogram" {
			text.WriteString(f.Name + "_bucket{le=\"+Inf\"} 1\n" + f.Name + "_sum 1\n" + f.Name + "_count 1\n")
		} else {
			text.WriteString(f.Name + " 1\n")
		}
	}
	if len(seen) < 60 {
		t.Errorf("only %d families are known", len(seen))
	}
	problems, err := promlint.New(strings.NewReader(text.String())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

var metricName = regexp.MustCompile(`\bmuster_[a-z0-9_]+`)

// TestDeployedFilesUseExistingMetrics checks that the alerts and the dashboard use existing metrics.
func TestDeployedFilesUseExistingMetrics(t *testing.T) {
	known := map[string]bool{}
	for _, f := range obs.Families() {
		known[f.Name] = true
		if f.Type == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[f.Name+suffix] = true
			}
		}
	}
	for _, path := range []string{"deploy/prometheus/alerts.yaml", "deploy/prometheus/alerts_test.yaml", "deploy/grafana/muster.json", "docs/observability.md"} {
		names := metricName.FindAllString(read(t, path), -1)
		if len(names) < 5 {
			t.Errorf("%s names only %d metrics: the search is broken", path, len(names))
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s uses %s, which does not exist", path, name)
			}
		}
	}
}

// TestQueriedLabelsExist checks that queries use existing labels.
func TestQueriedLabelsExist(t *testing.T) {
	known := map[string][]string{}
	for _, f := range obs.Families() {
		labels := append([]string{"instance", "job"}, f.Labels...)
		for _, suffix := range []string{"", "_sum", "_count"} {
			known[f.Name+suffix] = labels
		}
		known[f.Name+"_bucket"] = append([]string{"le"}, labels...)
	}
	var (
		selector = regexp.MustCompile(`\b(muster_[a-z0-9_]+)(?:\{([^}]*)\})?`)
		matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
		group    = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
		legend   = regexp.MustCompile(`\{\{\s*([a-z_]+)\s*\}\}`)
	)
	checked := 0
	check := func(where, expr, text string) {
		var labels []string
		for _, m := range selector.FindAllStringSubmatch(expr, -1) {
			labels = append(labels, known[m[1]]...)
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				checked++
				if !slices.Contains(known[m[1]], l[1]) {
					t.Errorf("%s: %s has no label %s: %s", where, m[1], l[1], expr)
				}
			}
		}
		var by []string
		for _, m := range group.FindAllStringSubmatch(expr, -1) {
			by = append(by, m[1])
			for l := range strings.SplitSeq(m[1], ",") {
				if checked++; len(labels) > 0 && strings.TrimSpace(l) != "" && !slices.Contains(labels, strings.TrimSpace(l)) {
					t.Errorf("%s: no series has the label %q: %s", where, l, expr)
				}
			}
		}
		summed := strings.Contains(expr, "sum(") || strings.Contains(expr, "max(") || strings.Contains(expr, "min(")
		for _, m := range legend.FindAllStringSubmatch(text, -1) {
			if checked++; len(by) > 0 && !strings.Contains(strings.Join(by, ","), m[1]) || summed && len(by) == 0 || len(labels) > 0 && !slices.Contains(labels, m[1]) {
				t.Errorf("%s: the legend %q has no label: %s", where, text, expr)
			}
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr         string `json:"expr"`
				LegendFormat string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(read(t, "deploy", "grafana", "muster.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			check("panel "+p.Title, q.Expr, q.LegendFormat)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\s+(?:- )?expr: (?:[|>]-?\n)?((?:.*\n)+?)\s+(?:for|labels|annotations|keep_firing_for):`).FindAllStringSubmatch(read(t, "deploy", "prometheus", "alerts.yaml"), -1) {
		check("an alert", m[1], "")
	}
	if checked < 100 {
		t.Errorf("only %d labels are found: the search is broken", checked)
	}
}

// TestEveryAlertIsTested checks that the unit tests make each alert fire.
func TestEveryAlertIsTested(t *testing.T) {
	tests := read(t, "deploy", "prometheus", "alerts_test.yaml")
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(read(t, "deploy", "prometheus", "alerts.yaml"), -1)
	if len(alerts) < 15 {
		t.Fatalf("only %d alerts are found", len(alerts))
	}
	for _, a := range alerts {
		if !strings.Contains(tests, `alertname="`+a[1]+`"`) && !strings.Contains(tests, "alertname: "+a[1]+"\n") && !strings.Contains(tests, a[1]+"|") && !strings.Contains(tests, "|"+a[1]) {
			t.Errorf("no test of alerts_test.yaml makes %s fire", a[1])
		}
	}
}

func TestDashboardIsValid(t *testing.T) {
	var dashboard struct {
		UID    string `json:"uid"`
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			GridPos struct {
				X int `json:"x"`
				Y int `json:"y"`
				W int `json:"w"`
				H int `json:"h"`
			} `json:"gridPos"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(read(t, "deploy", "grafana", "muster.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	cells := map[[2]int]string{} // of the grid
	for _, p := range dashboard.Panels {
		for i := range p.GridPos.W * p.GridPos.H {
			at := [2]int{p.GridPos.X + i%p.GridPos.W, p.GridPos.Y + i/p.GridPos.W}
			if cells[at] != "" {
				t.Fatalf("panel %q overlaps panel %q", p.Title, cells[at])
			}
			cells[at] = p.Title
		}
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: its number is used twice, it has no title, or it is too wide", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no queries", p.Title)
		}
		for _, target := range p.Targets {
			if strings.Count(target.Expr, "(") != strings.Count(target.Expr, ")") || strings.Count(target.Expr, "{") != strings.Count(target.Expr, "}") {
				t.Errorf("panel %q: %s is not balanced", p.Title, target.Expr)
			}
		}
	}
	if dashboard.UID == "" || len(ids) < 20 {
		t.Errorf("the dashboard %q has %d panels", dashboard.UID, len(ids))
	}
}

// promtool runs Debian's promtool in deploy/prometheus.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("skipped: promtool is not installed: scripts/need promtool")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = filepath.Join(root, "deploy", "prometheus")
	cmd.WaitDelay = time.Minute
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlertRules(t *testing.T) {
	promtool(t, "check", "rules", "alerts.yaml")
	promtool(t, "check", "config", "--syntax-only", "prometheus.yaml")
	promtool(t, "test", "rules", "alerts_test.yaml")
}

// TestDashboardQueries has promtool read each query of the dashboard, as a rule.
func TestDashboardQueries(t *testing.T) {
	var exprs []string
	for _, m := range regexp.MustCompile(`"expr": ("(?:[^"\\]|\\.)*")`).FindAllStringSubmatch(read(t, "deploy", "grafana", "muster.json"), -1) {
		var expr string
		if err := json.Unmarshal([]byte(m[1]), &expr); err != nil {
			t.Fatal(err)
		}
		exprs = append(exprs, strings.ReplaceAll(expr, "$__rate_interval", "5m"))
	}
	if len(exprs) < 20 {
		t.Fatalf("only %d queries are found", len(exprs))
	}
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for _, expr := range exprs {
		quoted, err := json.Marshal(expr)
		if err != nil {
			t.Fatal(err)
		}
		rules.WriteString("      - record: a:b:c\n        expr: " + string(quoted) + "\n")
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", "--lint=none", path)
}
