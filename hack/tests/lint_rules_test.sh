#!/usr/bin/env bash
# .golangci.yaml enforces what CONTRIBUTING.md promises: testdata/lint breaks every rule once, and every
# breach must be reported, by the linter that guards it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

need_tool golangci-lint
linter=$(tool golangci-lint)
WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
WORK=$(cd "$WORK" && pwd -P)
trap 'rm -rf "$WORK"' EXIT

cp -R "$ROOT/hack/tests/testdata/lint" "$WORK/house"
cp "$ROOT/go.mod" "$ROOT/go.sum" "$ROOT/.golangci.yaml" "$WORK/house"
# The same breaches in each pure core.
for core in zonespread/policy reservecache/floor permitgate/{gang,proposal}; do
	mkdir -p "$WORK/house/plugins/$core"
	sed 1,2d "$WORK/house/core.go" >"$WORK/house/plugins/$core/core.go"
done
for core in buy rebalance/act; do
	mkdir -p "$WORK/house/$core"
	sed 1,2d "$WORK/house/core.go" >"$WORK/house/$core/core.go"
done
rm "$WORK/house/core.go"

# wanted prints "file:line linter" for each mark.
wanted() {
	(cd "$WORK/house" && grep -rn --include='*.go' -e '// want' .) |
		awk -F: '{
			line = $2
			text = $0
			if (sub(/.*\/\/ want-below /, "", text)) line++
			else sub(/.*\/\/ want /, "", text)
			n = split(text, linters, " ")
			for (i = 1; i <= n; i++) print substr($1, 3) ":" line " " linters[i]
		}' | LC_ALL=C sort
}

# reported prints the same for what the linter says.
reported() {
	sed -n 's|^\([^: ]*\.go\):\([0-9]*\):[0-9]*: .*(\([a-z]*\))$|\1:\2 \3|p' "$WORK/out" | LC_ALL=C sort
}

rc=0
(cd "$WORK/house" && "$linter" run --config .golangci.yaml --show-stats=false \
	--output.text.print-issued-lines=false ./...) >"$WORK/out" 2>&1 || rc=$?
wanted >"$WORK/want"
reported >"$WORK/got"
if [ ! -s "$WORK/want" ] || ! diff -u "$WORK/want" "$WORK/got" >"$WORK/diff"; then
	cat "$WORK/out"
	say "- wanted, + reported:"
	grep '^[-+][^-+]' "$WORK/diff" || true
	die "lint_rules_test: .golangci.yaml does not enforce the rules (exit $rc)"
fi

# A plugin that is not listed would be free to import the others.
for dir in "$ROOT"/plugins/*/; do
	name=$(basename "$dir")
	[ -n "$(find "$dir" -maxdepth 1 -name '*.go')" ] || continue
	grep -q "^ *plugins-apart-$name:" "$ROOT/.golangci.yaml" ||
		die "lint_rules_test: .golangci.yaml has no rule plugins-apart-$name for plugins/$name"
	for other in "$ROOT"/plugins/*/; do
		other=$(basename "$other")
		[ "$other" != "$name" ] || continue
		awk -v rule="plugins-apart-$name:" '$1 == rule { on = 1; next } /^        [a-z-]+:$/ { on = 0 } on' "$ROOT/.golangci.yaml" |
			grep -q "zonewise.dev/plugins/$other," ||
			die "lint_rules_test: plugins-apart-$name does not deny zonewise.dev/plugins/$other"
	done
done
say "ok: $(wc -l <"$WORK/want" | tr -d ' ') breaches, each reported"
