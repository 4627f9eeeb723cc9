#!/usr/bin/env bash
# The helpers of hack/lib.sh, and the one line that missing or old tools get.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
fail() { die "lib_test: $*"; }

while read -r have want answer; do
	got=no
	if version_at_least "$have" "$want"; then got=yes; fi
	[ "$got" = "$answer" ] || fail "version_at_least $have $want is $got, want $answer"
done <<'CASES'
go1.26.8 1.26.0 yes
go1.26 1.26.0 yes
go1.26.0 1.26.1 no
go1.9 1.26.0 no
go1.100 1.26.0 yes
go1.27rc1 1.26.0 yes
go1.25.9 1.26.0 no
v2.0.0 1.99 yes
CASES

for pair in 0:0s 59:59s 60:1m00s 185:3m05s 3720:1h02m; do
	[ "$(human "${pair%%:*}")" = "${pair#*:}" ] || fail "human ${pair%%:*} is $(human "${pair%%:*}"), want ${pair#*:}"
done

# What "quietly" says meanwhile: of a compile its packages, of another program no number.
while IFS='|' read -r line answer; do
	printf '%b' "$line" >"$WORK/log"
	[ "$(progress_of "$WORK/log")" = "$answer" ] || fail "progress_of \"$line\" is $(progress_of "$WORK/log"), want $answer"
done <<'CASES'
|working
go: downloading example.com/a v1.0.0\ngo: downloading example.com/b v1.0.0\n|2 modules downloaded
go: downloading example.com/a v1.0.0\nexample.com/a\nexample.com/b/v2\nfmt\n|3 packages compiled
Reading package lists...\n\nSetting up runc (1.1.5) ...\n|working
CASES

# one_line PATTERN COMMAND... wants a failure that is explained by exactly one line.
one_line() {
	local pattern=$1
	shift
	if "$@" >"$WORK/out" 2>&1; then fail "\"$*\" succeeded"; fi
	[ "$(wc -l <"$WORK/out")" -eq 1 ] && grep -q "^error: .*$pattern" "$WORK/out" ||
		fail "\"$*\" says: $(cat "$WORK/out")"
}

# A PATH with the usual tools and no go, then with a go of another age.
mkdir "$WORK/path"
for tool in bash sed head cat dirname find git grep mktemp rm uname tr tail; do
	ln -s "$(command -v $tool)" "$WORK/path/$tool"
done
one_line 'go not found: install Go' env PATH="$WORK/path" BIN="$WORK/bin" bash "$ROOT/hack/controlplane/build.sh"
cat >"$WORK/path/go" <<'OLD'
#!/bin/sh
case "$*" in
"env GOVERSION") echo go1.19.3 ;;
*) echo "go: errors parsing go.mod" >&2; exit 1 ;;
esac
OLD
chmod +x "$WORK/path/go"
one_line 'go1.19.3 is too old: install Go' env PATH="$WORK/path" BIN="$WORK/bin" bash "$ROOT/hack/controlplane/build.sh"

one_line 'KUBEBUILDER_ASSETS=.* is not a directory' env KUBEBUILDER_ASSETS="$WORK/none" BIN="$WORK/bin" "$ROOT/hack/controlplane/build.sh"
one_line 'unknown binary "kubelet", want one of: etcd' env BIN="$WORK/bin" "$ROOT/hack/controlplane/build.sh" kubelet
one_line 'install the real one' env PATH="$WORK/path" bash -c ". $ROOT/hack/lib.sh; debian_package none 'install the real one'"
one_line 'unknown step "everything", want' "$ROOT/hack/test.sh" everything
one_line 'unknown check "everything", want' "$ROOT/hack/verify.sh" everything

# KUBEBUILDER_ASSETS lends what it has: a link, not a build.
mkdir "$WORK/assets"
for name in etcd kube-apiserver kube-controller-manager kubectl kwok; do
	printf '#!/bin/sh\n' >"$WORK/assets/$name"
	chmod +x "$WORK/assets/$name"
done
KUBEBUILDER_ASSETS=$WORK/assets BIN=$WORK/bin "$ROOT/hack/controlplane/build.sh" >"$WORK/out"
for name in etcd kube-apiserver kube-controller-manager kubectl kwok; do
	[ "$WORK/bin/$name" -ef "$WORK/assets/$name" ] || fail "$name of KUBEBUILDER_ASSETS is not used: $(cat "$WORK/out")"
done

# The version is a semantic one whose build metadata names ours.
version=$("$ROOT/hack/version.sh")
[[ $version =~ ^v1\.[0-9]+\.[0-9]+\+zonewise\.[0-9]+\.[0-9]+\.[0-9]+([.-][0-9A-Za-z.-]+)?$ ]] || fail "version $version"
case " $("$ROOT/hack/version.sh" ldflags) " in
*" -X k8s.io/component-base/version.gitVersion=$version "*) ;;
*) fail "ldflags do not stamp $version" ;;
esac

# Both programs say it.
"$ROOT/hack/build.sh" >"$WORK/out" || fail "hack/build.sh: $(cat "$WORK/out")"
for command in "zonewise-scheduler --version" "zonewise version"; do
	# shellcheck disable=SC2086
	case $("$BIN"/$command) in
	*"$version"*) ;;
	*) fail "\"$command\" does not say $version" ;;
	esac
done
say "ok: helpers, error lines and versions"
