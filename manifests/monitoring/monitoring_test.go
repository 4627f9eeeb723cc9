package monitoring

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/testutil"
	"sigs.k8s.io/yaml"

	"zonewise.dev/internal/metrics"
)

// TestMetricsPassPrometheusLinter checks names, units, types and help texts by the rules of promlint.
func TestMetricsPassPrometheusLinter(t *testing.T) {
	var text strings.Builder
	for _, e := range metrics.Catalog() {
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s\n", e.Name, e.Help, e.Name, e.Kind)
		labels := make([]string, len(e.Labels))
		for i, name := range e.Labels {
			labels[i] = name + `="x"`
		}
		in := "{" + strings.Join(labels, ",") + "}"
		if e.Kind == metrics.Histogram {
			bucket := "{" + strings.Join(append(labels, `le="+Inf"`), ",") + "}"
			fmt.Fprintf(&text, "%s_bucket%s 1\n%s_sum%s 1\n%s_count%s 1\n", e.Name, bucket, e.Name, in, e.Name, in)
			continue
		}
		fmt.Fprintf(&text, "%s%s 1\n", e.Name, in)
	}
	problems, err := testutil.NewPromLinter(strings.NewReader(text.String())).Lint()
	require.NoError(t, err, text.String())
	require.Empty(t, problems)

	bad, err := testutil.NewPromLinter(strings.NewReader("# TYPE zonewise_waits gauge\nzonewise_waits_ms 1\n")).Lint()
	require.NoError(t, err)
	require.NotEmpty(t, bad, "the linter looks")
}

// TestMetricsAreWellDescribed holds what the linter does not know.
func TestMetricsAreWellDescribed(t *testing.T) {
	require.NotEmpty(t, metrics.Catalog())
	for _, e := range metrics.Catalog() {
		require.True(t, strings.HasPrefix(e.Name, "zonewise_"), e.Name)
		require.True(t, strings.HasSuffix(e.Help, "."), "%s: the help is a sentence", e.Name)
		require.Equal(t, e.Kind == metrics.Counter, strings.HasSuffix(e.Name, "_total"), e.Name)
		if e.Kind == metrics.Histogram {
			require.NotEmpty(t, e.Buckets, e.Name)
		}
	}
}

// TestMetricsAreDeclaredInTheCatalog: a metric that is made by component-base's own constructor would be missing in the
// document, in the linter's test and in the tests of alerts.
func TestMetricsAreDeclaredInTheCatalog(t *testing.T) {
	const componentBase = "k8s.io/component-base/metrics"
	constructor := regexp.MustCompile(`^New(Gauge|Counter|Histogram|Summary|TimingHistogram)(Vec|Func)?$|^NewDesc$`)
	files := 0
	for _, dir := range []string{"../../plugins", "../../internal", "../../cmd"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "../../internal/metrics/") {
				return err
			}
			files++
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name := ""
			for _, spec := range parsed.Imports {
				if spec.Path.Value == `"`+componentBase+`"` {
					name = "metrics"
					if spec.Name != nil {
						name = spec.Name.Name
					}
				}
			}
			if name == "" {
				return nil
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if selector, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := selector.X.(*ast.Ident); ok && x.Name == name && constructor.MatchString(selector.Sel.Name) {
						t.Errorf("%s: %s.%s is not in the catalog: use package internal/metrics", path, name, selector.Sel.Name)
					}
				}
				return true
			})
			return nil
		}))
	}
	require.Greater(t, files, 50, "the sources are found")
}

var (
	metricName = regexp.MustCompile(`\bzonewise_[a-z0-9_]+`)
	// Labels are named in selectors and in by (...).
	selectors = regexp.MustCompile(`(zonewise_[a-z0-9_]+)\{([^}]*)\}`)
	byLabels  = regexp.MustCompile(`\bby \(([^)]*)\)`)
	matcher   = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
)

// requireKnown checks that the metrics and labels of an expression exist.
func requireKnown(t *testing.T, where, expr string) {
	t.Helper()
	catalog := map[string]metrics.Entry{}
	for _, e := range metrics.Catalog() {
		catalog[e.Name] = e
	}
	find := func(name string) metrics.Entry {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if e, ok := catalog[strings.TrimSuffix(name, suffix)]; ok && e.Kind == metrics.Histogram && strings.HasSuffix(name, suffix) {
				e.Labels = append([]string{"le"}, e.Labels...)
				return e
			}
		}
		e, ok := catalog[name]
		require.True(t, ok, "%s: no metric is named %s", where, name)
		require.NotEqual(t, metrics.Histogram, e.Kind, "%s: %s is a histogram, which has no value of its own", where, name)
		return e
	}
	names := metricName.FindAllString(expr, -1)
	require.NotEmpty(t, names, where)
	var labels []string
	for _, name := range names {
		labels = append(labels, find(name).Labels...)
	}
	for _, found := range selectors.FindAllStringSubmatch(expr, -1) {
		for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
			require.Contains(t, find(found[1]).Labels, m[1], "%s: %s has no such label", where, found[1])
		}
	}
	for _, found := range byLabels.FindAllStringSubmatch(expr, -1) {
		for name := range strings.SplitSeq(found[1], ",") {
			require.Contains(t, labels, strings.TrimSpace(name), "%s: no metric of it has the label", where)
		}
	}
}

// TestAlertsNameMetricsThatExist, with labels that they have, and say what to do. Each has
// its runbook.
func TestAlertsNameMetricsThatExist(t *testing.T) {
	file, err := rules()
	require.NoError(t, err)
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, runbooks, _ := strings.Cut(string(text), "\n## Runbooks\n")
	seen := map[string]bool{}
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			require.False(t, seen[r.Alert], r.Alert)
			seen[r.Alert] = true
			requireKnown(t, r.Alert, r.Expr)
			require.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], r.Alert)
			for _, annotation := range []string{"summary", "description", "action"} {
				require.True(t, strings.HasSuffix(r.Annotations[annotation], "."), "%s: %s", r.Alert, annotation)
			}
			require.Equal(t, Runbooks+"#"+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
			require.Contains(t, runbooks, "\n### "+r.Alert+"\n", "docs/operations.md has no such section")
		}
	}
	require.NotEmpty(t, seen)
	for _, found := range regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatch(runbooks, -1) {
		require.True(t, seen[found[1]], "docs/operations.md: there is no alert %s", found[1])
	}
}

// TestDocumentsNameMetricsThatExist, those beside the generated one.
func TestDocumentsNameMetricsThatExist(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	known := map[string]bool{}
	for _, e := range metrics.Catalog() {
		known[e.Name] = true
	}
	named := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile("`(zonewise_[a-z0-9_]+)[`{]").FindAllStringSubmatch(string(text), -1) {
			if !strings.HasSuffix(found[1], "_") { // it stands for many
				require.True(t, known[found[1]], "%s: no metric is named %s", file, found[1])
				named++
			}
		}
	}
	require.Greater(t, named, 50)
}

// TestEachAlertHasATest in which it is silent at one time and fires at another.
func TestEachAlertHasATest(t *testing.T) {
	raw, err := os.ReadFile("rules_test.yaml")
	require.NoError(t, err)
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string `json:"alertname"`
				ExpAlerts []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	require.NoError(t, yaml.Unmarshal(raw, &file))
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, at := range test.AlertRuleTest {
			if len(at.ExpAlerts) > 0 {
				fires[at.Alertname] = true
			} else {
				silent[at.Alertname] = true
			}
		}
	}
	alerts, err := rules()
	require.NoError(t, err)
	for _, group := range alerts.Groups {
		for _, r := range group.Rules {
			require.True(t, fires[r.Alert] && silent[r.Alert], "%s fires: %v, is silent: %v", r.Alert, fires[r.Alert], silent[r.Alert])
		}
	}
}

// TestDashboardNamesMetricsThatExist, with labels that they have.
func TestDashboardNamesMetricsThatExist(t *testing.T) {
	all, err := queries()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, q := range all {
		requireKnown(t, q.panel, q.expr)
	}
}

// TestGeneratedFilesAreCurrent, so that this is known before "make verify" runs.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	for path, want := range map[string]string{"../../docs/metrics.md": Markdown(), "prometheusrule.yaml": PrometheusRule(Runbooks)} {
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s is not current: run make update", path)
	}
	var object struct {
		Kind string   `json:"kind"`
		Spec ruleFile `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(PrometheusRule(Runbooks)), &object))
	want, err := rules()
	require.NoError(t, err)
	require.Equal(t, want, object.Spec)
}

// TestRunbooksAreAddresses: the object for the Prometheus Operator names the page that it is told, for every alert.
func TestRunbooksAreAddresses(t *testing.T) {
	file, err := rules()
	require.NoError(t, err)
	alerts := 0
	for _, group := range file.Groups {
		alerts += len(group.Rules)
	}
	const page = "https://git.example.com/runbooks.md"
	require.Equal(t, alerts, strings.Count(PrometheusRule(page), "runbook_url: "+page+"#zonewise"))
	require.NotContains(t, PrometheusRule(page), Runbooks)
	require.Equal(t, alerts, strings.Count(PrometheusRule(Runbooks), "runbook_url: "+Runbooks+"#zonewise"))
}
