#!/usr/bin/env bash
# Has Prometheus' own promtool read the alerts, run the unit test of each, and parse every query of the dashboard. And
# shows that it would say so if one of them was wrong.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

need_tool promtool
promtool=$(tool promtool)
WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
fail() {
	cat "$WORK/out"
	die "alerts_test: $*"
}

cp "$ROOT"/manifests/monitoring/*.yaml "$WORK"
(cd "$ROOT" && go run ./manifests/monitoring/gen dashboard) >"$WORK/dashboard_rules.yaml"
cd "$WORK"

"$promtool" check rules --lint=all --lint-fatal rules.yaml >out 2>&1 || fail "rules.yaml"
"$promtool" test rules rules_test.yaml >out 2>&1 || fail "rules_test.yaml"
"$promtool" check rules dashboard_rules.yaml >out 2>&1 || fail "a query of dashboard.json"
queries=$(grep -c 'record: ' dashboard_rules.yaml)

# An alert that never fires, and one that always does, fail their tests; a query that is no PromQL fails the check.
cp rules.yaml good.yaml
sed 's/{state="Closed"}) > 0/{state="Closed"}) > 1/' good.yaml >rules.yaml
if "$promtool" test rules rules_test.yaml >out 2>&1; then fail "passes with an alert that never fires"; fi
sed 's/oldest_assumed_pod_age_seconds) > 1800/oldest_assumed_pod_age_seconds) >= 0/' good.yaml >rules.yaml
if "$promtool" test rules rules_test.yaml >out 2>&1; then fail "passes with an alert that always fires"; fi
sed 's/expr: max(/expr: max((/' dashboard_rules.yaml >bad.yaml
if "$promtool" check rules bad.yaml >out 2>&1; then fail "takes a query that is no PromQL"; fi

say "ok: $(grep -c 'alert: ' good.yaml) alerts do what their tests say, $queries queries of the dashboard parse"
