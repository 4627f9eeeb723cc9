// Command gen writes the files that are generated from the metrics and alerts: manifests/monitoring/prometheusrule.yaml and
// docs/metrics.md. Run in manifests/monitoring, as go generate does. With the argument "dashboard" it prints the
// dashboard's queries as recording rules instead; with "alerts" and an address, prometheusrule.yaml whose runbooks are on that page.
package main

import (
	"fmt"
	"os"

	"zonewise.dev/manifests/monitoring"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 1 && args[0] == "dashboard" {
		rules, err := monitoring.DashboardAsRules()
		if err != nil {
			return err
		}
		_, err = fmt.Print(rules)
		return err
	}
	if len(args) == 2 && args[0] == "alerts" {
		_, err := fmt.Print(monitoring.PrometheusRule(args[1]))
		return err
	}
	if err := os.WriteFile("../../docs/metrics.md", []byte(monitoring.Markdown()), 0o644); err != nil { //nolint:gosec // a document
		return err
	}
	return os.WriteFile("prometheusrule.yaml", []byte(monitoring.PrometheusRule(monitoring.Runbooks)), 0o644) //nolint:gosec // a manifest
}
