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
one_line 'unknown program "kubelet", want tests, demo or some of: etcd' env BIN="$WORK/bin" "$ROOT/hack/controlplane/build.sh" kubelet
one_line 'install the real one' env PATH="$WORK/path" bash -c ". $ROOT/hack/lib.sh; debian_package none 'install the real one'"
one_line 'unknown step "everything", want' "$ROOT/hack/test.sh" everything
one_line 'unknown check "everything", want' "$ROOT/hack/verify.sh" everything

# KUBEBUILDER_ASSETS lends what it has: a link, not a build.
mkdir "$WORK/assets"
for name in etcd kube-apiserver kubectl controllers kube-controller-manager kwok karpenter; do
	printf '#!/bin/sh\n' >"$WORK/assets/$name"
	chmod +x "$WORK/assets/$name"
done
# lends SET NAME... wants the named programs in bin/, and no other.
lends() {
	local set=$1 name
	shift
	rm -rf "$WORK/bin"
	# shellcheck disable=SC2086
	KUBEBUILDER_ASSETS=$WORK/assets BIN=$WORK/bin "$ROOT/hack/controlplane/build.sh" $set >"$WORK/out"
	[ "$(cd "$WORK/bin" && echo *)" = "$*" ] || fail "build.sh $set makes $(cd "$WORK/bin" && echo *), want $*"
	for name in "$@"; do
		[ "$WORK/bin/$name" -ef "$WORK/assets/$name" ] || fail "$name of KUBEBUILDER_ASSETS is not used: $(cat "$WORK/out")"
	done
}
lends '' controllers etcd karpenter kube-apiserver kube-controller-manager kubectl kwok
lends tests controllers etcd kube-apiserver kubectl
lends demo controllers etcd kube-apiserver kubectl kwok
lends 'kwok tests' controllers etcd kube-apiserver kubectl kwok

# Programs are linked once for all checkouts. A project whose etcd prints a word, in two checkouts and with a cache of its own.
checkout() {
	mkdir -p "$WORK/$1/hack/controlplane/kubernetes" "$WORK/$1/hack/controlplane/etcd"
	cp "$ROOT/hack/lib.sh" "$WORK/$1/hack"
	cp "$ROOT/hack/controlplane/build.sh" "$WORK/$1/hack/controlplane"
	cp "$ROOT/go.mod" "$WORK/$1"
	cp "$ROOT/hack/controlplane/kubernetes/go.mod" "$WORK/$1/hack/controlplane/kubernetes"
	printf 'module example.com/etcd\n\ngo 1.26.0\n' >"$WORK/$1/hack/controlplane/etcd/go.mod"
	: >"$WORK/$1/hack/controlplane/etcd/go.sum"
	says "$1" "$2"
}
gocache=$(go env GOCACHE)
# says CHECKOUT WORD makes its etcd print a word.
says() { printf 'package main\n\nfunc main() { println("%s") }\n' "$2" >"$WORK/$1/hack/controlplane/etcd/main.go"; }
etcd() { env -u KUBEBUILDER_ASSETS -u BIN GOCACHE="$gocache" XDG_CACHE_HOME="$WORK/cache" "$WORK/$1/hack/controlplane/build.sh" etcd >"$WORK/out" || fail "$(cat "$WORK/out")"; }
# built CHECKOUT WORD wants a link; found CHECKOUT WORD wants none.
built() {
	etcd "$1"
	grep -q '^  etcd .* done in ' "$WORK/out" || fail "etcd of $1 is not built: $(cat "$WORK/out")"
	[ "$("$WORK/$1/bin/etcd" 2>&1)" = "$2" ] || fail "etcd of $1 does not say $2"
}
found() {
	etcd "$1"
	if grep -q '^  etcd ' "$WORK/out"; then fail "etcd of $1 is built again: $(cat "$WORK/out")"; fi
	[ "$("$WORK/$1/bin/etcd" 2>&1)" = "$2" ] || fail "etcd of $1 does not say $2"
}
checkout one first
checkout two first
built one first
found one first
found two first
says two second
built two second
found one first
says two first
found two first
GOFLAGS="$GOFLAGS -tags=other" built one first
for n in 1 2 3 4 5; do
	says two "word $n"
	built two "word $n"
done
[ "$(ls "$WORK/cache/zonewise/programs/etcd" | wc -l)" -eq 4 ] || fail "old programs are kept: $(ls "$WORK/cache/zonewise/programs/etcd")"
[ "$("$WORK/one/bin/etcd" 2>&1)" = first ] || fail "a checkout loses a program that is no longer kept"
# Two at a time.
says one both
says two both
(etcd one) & (etcd two)
wait $! || fail "two builds at a time"
found one both
found two both

# The version is a semantic one whose build metadata names ours: a release's, the checkout's, or one that no commit changes.
while read -r given answer; do
	version=$(VERSION=${given#-} "$ROOT/hack/version.sh")
	[[ $version =~ ^v1\.[0-9]+\.[0-9]+\+zonewise\.$answer$ ]] || fail "version $version with VERSION=$given"
	case " $(VERSION=${given#-} "$ROOT/hack/version.sh" ldflags) " in
	*" -X k8s.io/component-base/version.gitVersion=$version "*) ;;
	*) fail "ldflags do not stamp $version" ;;
	esac
done <<'CASES'
git [0-9]+\.[0-9]+\.[0-9]+([.-][0-9A-Za-z.-]+)?
v1.2.3 1\.2\.3
1.2.3-rc.1 1\.2\.3-rc\.1
- 0\.0\.0-dev
CASES
if commit=$(git -C "$ROOT" rev-parse --verify -q HEAD); then
	case $("$ROOT/hack/version.sh" ldflags) in *"$commit"*) fail "a commit changes the stamp" ;; esac
	case $(VERSION=git "$ROOT/hack/version.sh" ldflags) in *"$commit"*) ;; *) fail "VERSION=git does not stamp the commit" ;; esac
fi
version=$("$ROOT/hack/version.sh")

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
