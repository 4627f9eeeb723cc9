# shellcheck shell=bash
# Shared by the scripts in hack/: messages, tool checks, and the one set of Go
# build settings of the project. Source it; it runs nothing by itself.
#
# It keeps to bash 3.2 and POSIX tools, so that a machine with Go and make is enough.

# Where the repository is, whatever the caller's directory.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BIN=${BIN:-$ROOT/bin}

# One compiler setting for everything that is not a -race test (ADR 0024): the scheduler, the control plane, the
# image and the tools then share one build cache, also between checkouts, and every binary is static. GOWORK=off
# keeps a developer's workspace from changing the pinned versions; -buildvcs=false because versions are stamped by our
# own -ldflags, and a checkout owned by another user must build.
export CGO_ENABLED=${CGO_ENABLED:-0}
export GOWORK=off
case " ${GOFLAGS:-} " in
*" -trimpath "*) ;;
*) export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false -trimpath" ;;
esac

# die prints one line that says what to do, and ends the script.
die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

say() { printf '%s\n' "$*"; }

# seconds_since START prints whole seconds since START (a value of $SECONDS).
seconds_since() { printf '%d' $((SECONDS - $1)); }

# human SECONDS prints 7s, 3m05s or 1h02m.
human() {
	if (($1 < 60)); then
		printf '%ds' "$1"
	elif (($1 < 3600)); then
		printf '%dm%02ds' $(($1 / 60)) $(($1 % 60))
	else
		printf '%dh%02dm' $(($1 / 3600)) $(($1 % 3600 / 60))
	fi
}

# version_at_least HAVE WANT compares dotted numbers, leading "go" or "v" allowed.
version_at_least() {
	local IFS=. i h w
	local -a have want
	# A pre-release such as go1.27rc1 counts as its release.
	read -r -a have <<<"$(printf '%s' "$1" | sed -e 's/^[a-z]*//' -e 's/[^0-9.].*$//')"
	read -r -a want <<<"$(printf '%s' "$2" | sed -e 's/^[a-z]*//' -e 's/[^0-9.].*$//')"
	for i in 0 1 2; do
		h=${have[i]:-0} w=${want[i]:-0}
		((10#$h > 10#$w)) && return 0
		((10#$h < 10#$w)) && return 1
	done
	return 0
}

# need_go ends the script unless a Go toolchain is there that go.mod accepts.
need_go() {
	local want have
	want=$(sed -n 's/^go //p' "$ROOT/go.mod" | head -n 1)
	command -v go >/dev/null 2>&1 ||
		die "go not found: install Go $want or later from https://go.dev/dl and put it on PATH"
	# Asked outside the module, so that an old toolchain answers instead of refusing.
	have=$(cd / && go env GOVERSION 2>/dev/null) || have=
	[ -n "$have" ] || die "\"go env GOVERSION\" fails: install Go $want or later from https://go.dev/dl"
	if ! version_at_least "$have" "$want"; then
		# With GOTOOLCHAIN=auto an older go command fetches the right one by itself.
		(cd "$ROOT" && go version >/dev/null 2>&1) ||
			die "$have is too old: install Go $want or later from https://go.dev/dl, or set GOTOOLCHAIN=auto"
	fi
}

# go_modules prints the directory of every Go module of the repository, the main one first.
go_modules() {
	(cd "$ROOT" && find . -name go.mod -not -path './bin/*' -not -path './.git/*' -not -path './.cache/*' -not -path '*/testdata/*' |
		sed -e 's|/go\.mod$||' | LC_ALL=C sort)
}

# quietly LABEL COMMAND... runs a long command with its output kept aside and a
# heartbeat every 15 seconds. It prints one line with the elapsed time when the
# command is done, and the end of the output when it has failed.
quietly() {
	local label=$1 start=$SECONDS log rc=0 beat
	shift
	log=$(mktemp "${TMPDIR:-/tmp}/zonewise.XXXXXX")
	(
		nap=
		trap 'kill $nap 2>/dev/null; exit 0' TERM
		while :; do
			# wait, unlike a foreground sleep, ends as soon as the signal arrives.
			sleep "${HEARTBEAT_SECONDS:-15}" >/dev/null 2>&1 &
			nap=$!
			wait $nap || exit 0
			printf '  %-32s %s ... %s\n' "$label" "$(human $((SECONDS - start)))" "$(progress_of "$log")"
		done
	) &
	beat=$!
	"$@" >"$log" 2>&1 || rc=$?
	kill "$beat" 2>/dev/null || true
	wait "$beat" 2>/dev/null || true
	if ((rc != 0)); then
		tail -n 40 "$log" >&2
		rm -f "$log"
		return $rc
	fi
	rm -f "$log"
	printf '  %-32s done in %s\n' "$label" "$(human $((SECONDS - start)))"
}

# progress_of LOG says how far a "go build -v" has come, from what it has printed.
progress_of() {
	local down built
	down=$(grep -c '^go: downloading' "$1" || true)
	built=$(grep -c '^[^ ][^ ]*$' "$1" || true) # an import path; other programs print sentences
	if ((built > 0)); then
		printf '%d packages compiled' "$built"
	elif ((down > 0)); then
		printf '%d modules downloaded' "$down"
	else
		printf 'working'
	fi
}

# debian_package NAMES REASON installs packages that tests need, on Debian and its kin as root;
# anywhere else it ends the script and says what is wanted, and what for.
debian_package() {
	command -v apt-get >/dev/null 2>&1 || die "$2"
	[ "$(id -u)" = 0 ] || die "$2 (apt-get install $1, as root)"
	quietly "$1, from the distribution" apt_install "$1" || die "apt-get install $1 failed: the messages above say why"
}

# need_command PACKAGES REASON NAME... installs Debian packages unless there is a command of one of the names.
need_command() {
	local package=$1 reason=$2 name
	shift 2
	for name in "$@"; do
		if PATH=$PATH:/usr/sbin command -v "$name" >/dev/null 2>&1; then return; fi
	done
	debian_package "$package" "$reason"
}

# apt_install NAMES: a fresh machine has no lists yet; one with lists needs no update.
apt_install() {
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086
	apt-get install -y --no-install-recommends $1 && return
	# shellcheck disable=SC2086
	apt-get update && apt-get install -y --no-install-recommends $1
}

# pinned MODULE DIR prints the version that DIR/go.mod requires of MODULE.
pinned() {
	sed -n -e "s|^[[:space:]]*\(require \)\{0,1\}$1 \(v[^ ]*\).*|\2|p" "$2/go.mod" | head -n 1
}

# Programs of other projects, which the modules under hack/ pin, are linked once for all checkouts of a user. They are kept in
# ~/.cache/zonewise/programs (XDG_CACHE_HOME), of each name the KEPT most recently used ones.
KEPT=4

# need_program NAME DIR PACKAGE LDFLAGS builds a package of the module DIR, unless it is there, with a heartbeat. Two builds at a
# time may make the same program; both are complete before they get its name.
need_program() {
	local name=$1 dir=$2 package=$3 flags=$4 path new
	path=$(path_of "$@")
	if [ ! -x "$path" ]; then
		mkdir -p "${path%/*/*}" || die "cannot write to ${path%/*/*}: set XDG_CACHE_HOME"
		new=$(mktemp -d "${path%/*/*}/new.XXXXXX")
		if ! quietly "$name" go -C "$dir" build -mod=readonly -v -ldflags "$flags" -o "$new/$name" "$package"; then
			rm -rf "$new"
			die "$name did not build: the messages above say why (a first build needs the module proxy, about 8 GB of disk and 3 GB of memory)"
		fi
		mkdir -p "${path%/*}"
		mv -f "$new/$name" "$path"
		rm -rf "$new"
	fi
	touch "${path%/*}"
	# Another build may remove one meanwhile.
	# shellcheck disable=SC2012
	{ ls -1dt "${path%/*/*}"/*/ 2>/dev/null || true; } | tail -n +$((KEPT + 1)) | while IFS= read -r new; do rm -rf "$new"; done
}

# path_of NAME DIR PACKAGE LDFLAGS prints where need_program keeps a program: under what decides its content, as numbers. The
# versions of all that it is made of are in go.mod and go.sum.
path_of() {
	local file key own=
	case $3 in .*) own=$3 ;; esac # a package of the module itself
	key=$(
		cd "$2"
		{
			go env GOVERSION GOOS GOARCH GOAMD64 GOARM64 GOEXPERIMENT CGO_ENABLED GOFLAGS
			say "$3 $4"
			# shellcheck disable=SC2086
			find go.mod go.sum $own -type f | LC_ALL=C sort -u | while IFS= read -r file; do cksum "$file"; done
		} | cksum | tr ' ' -
	)
	say "${XDG_CACHE_HOME:-${HOME:-}/.cache}/zonewise/programs/$1/$key/$1"
}

# need_tool NAME builds the development tool that hack/tools/NAME pins; tool NAME prints its path. "go tool" would compile
# everything a second time, since it takes no -trimpath.
need_tool() { with_tool need_program "$1"; }
tool() { with_tool path_of "$1"; }

with_tool() {
	local dir=$ROOT/hack/tools/$2 package
	package=$(sed -n 's/^tool //p' "$dir/go.mod")
	case $package in zonewise.dev/*) package=. ;; esac
	case $2 in
	promtool) GOFLAGS="$GOFLAGS $PROMTOOL_TAGS" "$1" "$2" "$dir" "$package" '-s -w' ;;
	descheduler) # without a version of this form, which its images have, it does not start
		"$1" "$2" "$dir" "$package" "-s -w -X sigs.k8s.io/descheduler/pkg/version.version=v20260519-$(pinned sigs.k8s.io/descheduler "$dir")" ;;
	*) "$1" "$2" "$dir" "$package" '-s -w' ;;
	esac
}
PROMTOOL_TAGS=-tags=remove_all_sd # leaves out the clients of two dozen clouds

# copy_tree DIR copies the checkout, edited and new files included, ignored ones not.
copy_tree() {
	local file
	mkdir -p "$1"
	if git -C "$ROOT" rev-parse --git-dir >/dev/null 2>&1; then
		(cd "$ROOT" && git ls-files -co --exclude-standard -z) | while IFS= read -r -d '' file; do
			# A file that is deleted but not committed yet is still listed.
			[ -f "$ROOT/$file" ] || continue
			mkdir -p "$1/$(dirname "$file")"
			cp -p "$ROOT/$file" "$1/$file"
		done
	else
		(cd "$ROOT" && tar -cf - --exclude ./bin --exclude ./dist --exclude ./.cache .) | tar -xf - -C "$1"
	fi
}
