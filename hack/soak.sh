#!/usr/bin/env bash
# Runs the property tests with many more cases than "make test" does, -race where
# possible. SOAK_CHECKS sets the number of cases of each property (default 20000).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_go
# Only packages whose tests use rapid know its flags.
pkgs=$(cd "$ROOT" && go list -f '{{range .TestImports}}{{if eq . "pgregory.net/rapid"}}{{$.ImportPath}}{{end}}{{end}}{{range .XTestImports}}{{if eq . "pgregory.net/rapid"}} {{$.ImportPath}}{{end}}{{end}}' ./... |
	tr ' ' '\n' | grep . | sort -u)
[ -n "$pkgs" ] || die "no package has property tests"
say "$pkgs"
export TEST_ARGS="-timeout 6h -run . -rapid.checks=${SOAK_CHECKS:-20000}"
SOAK_PACKAGES=$pkgs "$ROOT/hack/test.sh" soak
