#!/usr/bin/env bash
# go test -exec hack/with_seed.sh: runs the program of a package's tests. Property tests are given PROPERTY_SEED (1), by a flag
# that no other package knows. The go command starts this in the directory of the package.
set -euo pipefail
if grep -qs '"pgregory\.net/rapid"' ./*_test.go; then
	set -- "$@" -rapid.seed="${PROPERTY_SEED:-1}"
fi
exec "$@"
