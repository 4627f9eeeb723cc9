// Package monitoring has the alerts and the dashboard of Zonewise, and writes docs/metrics.md.
//
// # Contract
//
// rules.yaml holds the alerts and rules_test.yaml a unit test of each; hack/tests/alerts_test.sh runs them with promtool,
// and has it parse the queries of the dashboard. go generate makes prometheusrule.yaml (the alerts for the Prometheus
// Operator) from rules.yaml, and docs/metrics.md from the metrics that the pack declares (package internal/metrics). The
// tests of this package compare alerts and dashboard with those metrics and their labels, and require a runbook in
// docs/operations.md for each alert.
//
// # Non-goals
//
// It serves no metrics and sends no alerts.
package monitoring

//go:generate go run ./gen
