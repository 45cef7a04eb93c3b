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

func TestThePageIsCurrent(t *testing.T) {
	if read(t, "docs", "metrics.md") != obs.Page() {
		t.Error("docs/metrics.md is not what the program has: run make gen")
	}
}

// TestNames holds that names, help texts and labels are as Prometheus asks for.
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

var named = regexp.MustCompile(`\bmuster_[a-z0-9_]+`)

// TestWhatIsDeployed holds that the alerts and the dashboard name metrics that there are.
func TestWhatIsDeployed(t *testing.T) {
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
		names := named.FindAllString(read(t, path), -1)
		if len(names) < 5 {
			t.Errorf("%s names only %d metrics: the search is broken", path, len(names))
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s names %s, which there is not", path, name)
			}
		}
	}
}

// TestEveryAlertIsTested holds that the unit tests make each alert fire.
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

func TestTheDashboardIsSound(t *testing.T) {
	var dashboard struct {
		UID    string `json:"uid"`
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			GridPos struct {
				X int `json:"x"`
				W int `json:"w"`
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
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: its number is used twice, it has no title, or it is too wide", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
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
