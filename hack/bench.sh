#!/usr/bin/env bash
# Runs the benchmarks in groups, each with the flags that fit it, and ends each group with a table of what it
# measured, ratios among it.
#
#   hack/bench.sh [GROUP...]     all groups when none is given:
#     zonespread   ZoneSpread against PodTopologySpread: growing clusters, one app, new selectors, moving nodes
#     issues       the shapes of kubernetes issues 105750 and 128949, scheduled from the first pod to the last
#     memory       what ZoneSpread's index takes per pod and selector
#     policies     a pod with ZoneSpreadPolicies, and one without, beside 1 to 1,000 policies; events of informers; statuses beside cycles;
#                  pods that are woken beside a node event a second
#     ledger       the ledger against kube-scheduler's cache
#     holds        1,000 reservations on 5,000 nodes: what finding room for their slots takes, and what a scheduling cycle pays; a
#                  production trace with a reservation for each service, and with placeholder pods
#     permitgate   what a pod without a gang pays, also beside gangs that wait, and what members and proposals cost
#     scale        whole schedulers with up to 15,000 nodes and 300,000 pods: start, first bind, cost of a pod, memory
#     floors       scheduler_perf's cases with spreading against SchedulingBasic, beside the floors of upstream's CI
#
# Ratios are of two things measured in turns in one process; absolute times are those of the machine at that time, so
# the load is printed, too. BENCH_ARGS is given to the test binaries, as in BENCH_ARGS='-test.cpuprofile cpu.out'.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ALL="zonespread issues memory policies ledger holds permitgate scale floors"
PERFORMANCE=./test/performance

# measure PACKAGE PATTERN BENCHTIME builds the package's test binary once and runs some of its benchmarks.
measure() {
	local binary
	binary=$WORK/$(tr -c 'a-z\n' _ <<<"$1").test
	[ -x "$binary" ] || (cd "$ROOT" && go test -c -o "$binary" "$1")
	# shellcheck disable=SC2086
	(cd "$ROOT/$1" && "$binary" -test.run '^$' -test.bench "$2" -test.benchtime "$3" -test.benchmem=false -test.timeout 2h ${BENCH_ARGS:-}) |
		tee -a "$WORK/log"
}

group_zonespread() { measure $PERFORMANCE 'ZoneSpread(Cost|Growth|OneApp|NewSelector|NodeRelabel)$' 20x; }
group_issues() { measure $PERFORMANCE ZoneSpreadIssue 1x; }
group_memory() { measure $PERFORMANCE 'ZoneSpreadMemory$' 1x; }
group_policies() {
	measure $PERFORMANCE ZoneSpreadPolicies 3000x
	measure ./plugins/zonespread/serve Events 20000x
	measure ./plugins/zonespread/serve Status 5x
	measure ./plugins/zonespread/serve Wake 200x
}
group_ledger() { measure $PERFORMANCE Ledger 1s; }
group_holds() {
	measure ./plugins/reservecache/floor . 200ms
	measure $PERFORMANCE 'ReserveCacheUnfilled|ReserveCacheStart' 3x
	measure $PERFORMANCE ReserveCacheTrace 2x
}
group_permitgate() {
	measure ./test/framework 'Pod$|PodWithoutGang|SearchForVictims' 1s
	measure ./test/framework PodsBeside 1x
	measure ./plugins/permitgate/gang . 200ms
	measure ./plugins/permitgate/proposal . 200ms
	measure $PERFORMANCE PermitGateWaiting 3x
}
group_scale() { measure $PERFORMANCE 'Scale$' 1x; }
group_floors() { measure $PERFORMANCE 'Floors$' 1x; }

# table prints the benchmarks of a log as rows, and what they report as columns.
table() {
	awk '
		/^Benchmark/ && NF > 3 {
			name = $1
			sub(/^Benchmark/, "", name)
			sub(/-[0-9]+$/, "", name)
			names[++rows] = name
			if (length(name) > width) width = length(name)
			for (i = 3; i < NF; i += 2) {
				unit = $(i + 1)
				if (unit == "ns/op" && $i == 0) continue
				if (!(unit in known)) { known[unit] = 1; units[++columns] = unit }
				value[rows, unit] = $i
			}
		}
		END {
			printf "%-*s", width, ""
			for (c = 1; c <= columns; c++) printf "  %12s", units[c]
			print ""
			for (r = 1; r <= rows; r++) {
				printf "%-*s", width, names[r]
				for (c = 1; c <= columns; c++) printf "  %*s", (length(units[c]) > 12 ? length(units[c]) : 12), ((r, units[c]) in value ? value[r, units[c]] : "-")
				print ""
			}
		}' "$1"
}

# load prints how busy the machine is.
load() {
	if [ -r /proc/loadavg ]; then
		printf 'load average %s on %s cores' "$(cut -d' ' -f1-3 /proc/loadavg)" "$(getconf _NPROCESSORS_ONLN)"
	else
		uptime | sed 's/.*load/load/'
	fi
}

main() {
	local group start begin=$SECONDS
	need_go
	# shellcheck disable=SC2086
	if [ $# -eq 0 ]; then set -- $ALL; fi
	for group in "$@"; do
		case " $ALL " in
		*" $group "*) ;;
		*) die "unknown group \"$group\", want some of: $ALL" ;;
		esac
	done
	WORK=$(mktemp -d "${TMPDIR:-/tmp}/zonewise.XXXXXX")
	trap 'rm -rf "$WORK"' EXIT
	say "$(go version), $(load)"
	for group in "$@"; do
		printf '\n== bench %s\n' "$group"
		start=$SECONDS
		: >"$WORK/log"
		"group_$group"
		grep -q '^Benchmark' "$WORK/log" || die "no benchmark ran in the group $group"
		printf '\n'
		table "$WORK/log"
		say "$(human $((SECONDS - start))), $(load)"
	done
	say "total $(human $((SECONDS - begin)))"
}

main "$@"
